//! Owners as users write them: numbers, or names from the image's own `/etc/passwd` and `/etc/group`, never from those of
//! this host; but for quota, which takes and shows names of this host.

use std::collections::HashMap;

use ondisk::quota::QuotaKind;
use platfs::rules;

use crate::console::Failure;
use crate::reading::OpenImage;

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
        Self::parse(&platfs_host::system::text(path).unwrap_or_default(), column)
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

/// Most bytes of a table of names that is read.
const TABLE_MAX: u64 = 4 << 20;

/// A user or a group as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Id {
    Number(u32),
    Name(String),
}

/// `USER`, `USER:GROUP` or `:GROUP`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    user: Option<Id>,
    group: Option<Id>,
}

/// Reads an owner.
///
/// # Errors
/// The part that is not of that form, as a sentence.
pub fn parse_owner(text: &str) -> Result<Owner, String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let id = |part: &str| match part.parse() {
        Ok(rules::NOBODY) => Err(format!("{part} stands for no user and no group")),
        Ok(number) => Ok(Some(Id::Number(number))),
        Err(_) if part.is_empty() => Ok(None),
        Err(_) if part.starts_with(|letter: char| letter.is_ascii_digit() || "-/".contains(letter)) => {
            Err(format!("{part} is neither a number nor a name: USER, USER:GROUP or :GROUP"))
        }
        Err(_) => Ok(Some(Id::Name(part.to_owned()))),
    };
    match (id(user)?, id(group)?) {
        (None, None) => Err("neither a user nor a group".into()),
        (user, group) => Ok(Owner { user, group }),
    }
}

/// Numbers of a user and a group, as far as they are said.
pub type Numbers = (Option<u32>, Option<u32>);

impl Owner {
    /// In an image, which knows its own names.
    ///
    /// # Errors
    /// A name that it does not know.
    pub fn of(&self, image: &OpenImage) -> Result<Numbers, Failure> {
        let look = |id: &Id, path: &str, what: &str| match id {
            Id::Number(number) => Ok(*number),
            Id::Name(name) => {
                let table = contents(image, path).map_err(|error| image.failure(path.as_bytes(), &error))?;
                let table = String::from_utf8_lossy(&table).into_owned();
                Names::parse(&table, 2).id(name).ok_or_else(|| {
                    let what = format!("names no {what} {name}; a number is taken as it is");
                    Failure::about(format!("{}: {path}", image.name), what)
                })
            }
        };
        let user = self.user.as_ref().map(|id| look(id, "/etc/passwd", "user")).transpose()?;
        let group = self.group.as_ref().map(|id| look(id, "/etc/group", "group")).transpose()?;
        Ok((user, group))
    }

    /// Both numbers, where there is no image whose names could be meant.
    ///
    /// # Errors
    /// A name, or only one of them.
    pub fn numbers(&self) -> Result<(u32, u32), Failure> {
        match (&self.user, &self.group) {
            (Some(Id::Number(user)), Some(Id::Number(group))) => Ok((*user, *group)),
            _ => Err(Failure::Usage(
                "on a mount --owner takes two numbers, UID:GID; chown(1) knows names".into(),
            )),
        }
    }
}

/// The contents of a table of an image; empty where there is none.
fn contents(image: &OpenImage, path: &str) -> platfs::Result<Vec<u8>> {
    let number = match image.volume.resolve(path.as_bytes()) {
        Err(platfs::Error::NotFound) => return Ok(Vec::new()),
        found => found?,
    };
    let file = image.volume.open_file(number)?;
    if file.size() > TABLE_MAX {
        return Err(platfs::Error::Invalid("is too large for a table of names".into()));
    }
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap_or_default()];
    let count = file.read_at(0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
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
    fn an_owner_is_user_group_or_both() {
        let number = |number| Some(Id::Number(number));
        assert_eq!(parse_owner("1:2"), Ok(Owner { user: number(1), group: number(2) }));
        assert_eq!(parse_owner("7"), Ok(Owner { user: number(7), group: None }));
        assert_eq!(parse_owner(":8"), Ok(Owner { user: None, group: number(8) }));
        let named = Owner { user: Some(Id::Name("www-data".into())), group: number(0) };
        assert_eq!(parse_owner("www-data:0"), Ok(named.clone()));
        assert!(named.numbers().is_err());
        for wrong in ["", ":", "1x", "1:2x", "4294967295", ":4294967295", "99999999999", "/etc", "-1"] {
            assert!(parse_owner(wrong).is_err(), "{wrong}");
        }
        assert!(parse_owner("4294967294").is_ok());
    }
}
