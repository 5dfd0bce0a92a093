//! Paths of inodes after a check.

use platfs::InodeNumber;

use crate::check::plant::{Image, checked, ready};

#[test]
fn files_and_directories_have_paths() {
    if !ready("files_and_directories_have_paths") {
        return;
    }
    for base in ["ext4", "ext2", "inline"] {
        let image = Image::of(base);
        let paths = ["a/b/c/other", "a/b", "short-link", "many/name-of-some-length-0399", "lost+found"];
        let (_, outcome) = checked(&image.bytes);
        let found = outcome.paths(&paths.map(|path| image.inode_of(path)));
        for (path, found) in paths.iter().zip(found) {
            assert_eq!(found.as_deref(), Some(format!("/{path}").as_bytes()), "{base}");
        }
        let others = [InodeNumber::ROOT, InodeNumber::constant(2000), InodeNumber::constant(8)];
        assert_eq!(outcome.paths(&others), [Some(b"/".to_vec()), None, None], "{base}");
    }
}

#[test]
fn what_went_to_lost_found_has_its_path_there() {
    if !ready("what_went_to_lost_found_has_its_path_there") {
        return;
    }
    let mut image = Image::of("ext4");
    let (gone, moved, inside) =
        (image.inode_of("a/b"), image.inode_of("a/b/c"), image.inode_of("a/b/c/other"));
    image.inode(gone, |inode| inode.raw_mut().i_links_count.set(0));
    let (_, outcome) = checked(&image.bytes);
    let home = format!("/lost+found/#{moved}");
    let expected = [None, Some(home.clone().into_bytes()), Some(format!("{home}/other").into_bytes())];
    assert_eq!(outcome.paths(&[gone, moved, inside]), expected);
}
