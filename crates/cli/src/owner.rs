//! Owners as users write them: numbers, since an image knows no names; where quota is set, also the names that this host
//! has in `/etc/passwd`, `/etc/group` and `/etc/projid`.

use std::collections::HashMap;

use ondisk::quota::QuotaKind;

/// The names that this host knows for ids of a kind.
#[derive(Debug, Default)]
pub struct Names(HashMap<u32, String>);

impl Names {
    /// The files that have them.
    pub const FILES: [&str; 3] = ["/etc/passwd", "/etc/group", "/etc/projid"];

    /// Those of this host; none where there is no such file.
    #[must_use]
    pub fn of_host(kind: QuotaKind) -> Self {
        let [users, groups, projects] = Self::FILES;
        let (path, column) = match kind {
            QuotaKind::User => (users, 2),
            QuotaKind::Group => (groups, 2),
            QuotaKind::Project => (projects, 1),
        };
        Self::parse(&std::fs::read_to_string(path).unwrap_or_default(), column)
    }

    fn parse(text: &str, column: usize) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let entry = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next().filter(|name| !name.is_empty())?.to_owned();
            Some((fields.nth(column - 1)?.trim().parse().ok()?, name))
        };
        let mut names = HashMap::new();
        for (id, name) in lines.filter_map(entry) {
            names.entry(id).or_insert(name);
        }
        Names(names)
    }

    /// The name of an id.
    #[must_use]
    pub fn name(&self, id: u32) -> Option<&str> {
        self.0.get(&id).map(String::as_str)
    }

    /// The id that a name, or a number, means.
    #[must_use]
    pub fn id(&self, text: &str) -> Option<u32> {
        let named = self.0.iter().find(|(_, name)| *name == text).map(|(id, _)| *id);
        named.or_else(|| text.parse().ok()).filter(|id| *id != u32::MAX)
    }
}

/// Reads `UID:GID`.
///
/// # Errors
/// What is not of that form, as a sentence.
pub fn parse_owner(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    parts.ok_or_else(|| format!("{text:?} is not of the form UID:GID"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_host() {
        let names = Names::parse("root:x:0:0::/:/bin/sh\n# no\nbob:x:1000:100::/:\nodd\nagain:x:0:0:\n", 2);
        assert_eq!((names.name(0), names.name(1000), names.name(7)), (Some("root"), Some("bob"), None));
        assert_eq!(
            (names.id("bob"), names.id("7"), names.id("eve"), names.id("4294967295")),
            (Some(1000), Some(7), None, None)
        );
        assert_eq!(Names::parse("web:42\n", 1).id("web"), Some(42));
    }

    #[test]
    fn an_owner_is_two_numbers() {
        assert_eq!(parse_owner("1:2"), Ok((1, 2)));
        assert!(parse_owner("1").is_err());
    }
}
