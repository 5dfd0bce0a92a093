//! Statistics of a figure over seeds, and whether two differ.

/// Statistics of one figure over seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) n: usize,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) median: f64,
    pub(crate) avg: f64,
    pub(crate) stddev: f64,
}

impl Summary {
    pub(crate) fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = |at: usize| sorted.get(at).copied().unwrap_or(min);
        let median = if n % 2 == 1 { middle(n / 2) } else { (middle(n / 2 - 1) + middle(n / 2)) / 2.0 };
        let count = f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        let avg = sorted.iter().sum::<f64>() / count;
        let squares: f64 = sorted.iter().map(|v| (v - avg).powi(2)).sum();
        let stddev = if n > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        Some(Summary { n, min, max, median, avg, stddev })
    }

    /// Returns true if the means differ significantly at 95 % by Welch's t test.
    pub(crate) fn differs(&self, other: &Summary) -> bool {
        let (a, b) = (self.variance(), other.variance());
        if self.n < 2 || other.n < 2 || a + b == 0.0 {
            return self.avg.to_bits() != other.avg.to_bits();
        }
        (self.avg - other.avg).abs() / (a + b).sqrt() > t95(freedom(self, other, a, b))
    }

    /// The half of the interval of 95 % of the mean; zero of a single run.
    pub(crate) fn half(&self) -> f64 {
        if self.n < 2 { 0.0 } else { t95(self.count() - 1.0) * self.variance().sqrt() }
    }

    /// Ratio of the means, and the half of its interval of 95 % (by the delta method; zero where nothing
    /// varies). None if there is nothing to divide by.
    pub(crate) fn ratio(&self, other: &Summary) -> Option<(f64, f64)> {
        let ratio = self.avg / other.avg;
        if other.avg == 0.0 || !ratio.is_finite() {
            return None;
        }
        let (a, b) =
            (self.variance() / other.avg.powi(2), other.variance() * ratio.powi(2) / other.avg.powi(2));
        if self.n < 2 || other.n < 2 || a + b == 0.0 {
            return Some((ratio, 0.0));
        }
        Some((ratio, t95(freedom(self, other, a, b)) * (a + b).sqrt()))
    }

    fn count(&self) -> f64 {
        f64::from(u32::try_from(self.n).unwrap_or(u32::MAX))
    }

    /// Of the mean.
    fn variance(&self) -> f64 {
        self.stddev.powi(2) / self.count()
    }
}

/// Degrees of freedom of a difference of two means of these variances (Welch and Satterthwaite).
fn freedom(one: &Summary, other: &Summary, a: f64, b: f64) -> f64 {
    (a + b).powi(2) / (a.powi(2) / (one.count() - 1.0) + b.powi(2) / (other.count() - 1.0))
}

/// Two-sided 95 % quantile of Student's distribution, by the expansion of Cornish and Fisher.
fn t95(freedom: f64) -> f64 {
    const Z: f64 = 1.959_964;
    let v = freedom.max(1.0);
    if v < 2.0 {
        return 12.706;
    }
    Z + (Z.powi(3) + Z) / (4.0 * v) + (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * v * v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_those_of_ministat() {
        let a = Summary::of(&[350.0, 720.0, 570.0, 130.0, 10.0]).unwrap();
        assert_eq!((a.n, a.min, a.max, a.median, a.avg), (5, 10.0, 720.0, 350.0, 356.0));
        assert!((a.stddev - 296.0).abs() < 1.0, "{}", a.stddev);
        let b = Summary::of(&[970.0, 1360.0, 750.0, 840.0, 800.0]).unwrap();
        assert!(a.differs(&b));
        assert!(!a.differs(&a));
        let (ratio, half) = b.ratio(&a).unwrap();
        // By hand: standard error 1.033, 4.8 degrees of freedom.
        assert!((ratio - b.avg / a.avg).abs() < 1e-12 && (half - 2.69).abs() < 0.1, "{ratio} {half}");
        let zero = Summary { avg: 0.0, ..a };
        assert_eq!((a.ratio(&zero), a.ratio(&Summary { n: 1, ..a })), (None, Some((1.0, 0.0))));
        assert!((t95(8.0) - 2.306).abs() < 0.01);
    }
}
