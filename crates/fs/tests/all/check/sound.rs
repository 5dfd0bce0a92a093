//! Sound volumes, of which nothing must be said.

use crate::check::plant::{base, bases, checked, ready};

#[test]
fn nothing_is_said_of_sound_volumes() {
    if !ready("nothing_is_said_of_sound_volumes") {
        return;
    }
    for name in bases() {
        let (heard, outcome) = checked(&base(name));
        assert_eq!(heard, [], "{name}");
        assert!(outcome.repaired.is_unchanged() && outcome.summary.is_sound(), "{name}");
    }
}
