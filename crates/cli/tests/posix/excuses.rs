//! What may differ between the kernel's ext4 and a mount through FUSE, each with its reason.

/// A difference with a reason.
pub struct Excuse {
    /// The case it is in.
    pub case: &'static str,
    /// What the line of either side has in it.
    pub line: &'static str,
    /// Why it is so.
    #[allow(dead_code, reason = "for people")]
    pub reason: &'static str,
    /// The only profile it is for, or all.
    pub profile: Option<&'static str>,
}

impl Excuse {
    /// Whether it explains these two lines.
    pub fn covers(&self, case: &str, left: Option<&String>, right: Option<&String>) -> bool {
        self.case == case && [left, right].into_iter().flatten().any(|line| line.contains(self.line))
    }

    /// Whether a run of a profile meets it.
    pub fn applies_to(&self, profile: &str) -> bool {
        self.profile.is_none_or(|only| only == profile)
    }
}
