//! A seeded stream of numbers and the distributions workloads draw from.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        // A few steps apart, so that neighbouring seeds don't share a prefix.
        let mut numbers = Numbers(seed.wrapping_mul(0xA076_1D64_78BD_642F));
        numbers.next();
        numbers
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Uniform below `bound`.
    pub(crate) fn index(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.below(bound)).unwrap_or(0)
    }

    /// Uniform from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u32, high: u32) -> u32 {
        let span = u64::from(high.saturating_sub(low)) + 1;
        low + u32::try_from(self.below(span)).unwrap_or(0)
    }

    /// Uniform in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        // 53 bits fit a double exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits")]
        let whole = (self.next() >> 11) as f64;
        whole / 9_007_199_254_740_992.0
    }

    /// True with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Standard normal (Box and Muller 1958).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Lognormal with these parameters of the logarithm.
    pub(crate) fn lognormal(&mut self, mu: f64, sigma: f64) -> f64 {
        (mu + sigma * self.normal()).exp()
    }

    /// Between `low` and `high`, every octave as likely as any other.
    pub(crate) fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }
}

/// The nearest count to a positive float, at most `limit`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
pub(crate) fn count(value: f64, limit: u32) -> u32 {
    value.clamp(0.0, f64::from(limit)).round() as u32
}

/// A count as a float; exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}
