#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;

use super::*;
use crate::numbers::Numbers;

fn file(place: &Place, name: &str, bytes: &[u8]) -> File {
    let path = place.path(name);
    File::create(&path).unwrap().write_all(bytes).unwrap();
    File::open(path).unwrap()
}

#[test]
fn pieces_by_content_survive_what_is_put_before_them() {
    let place = Place::new(&std::env::temp_dir()).unwrap();
    let mut numbers = Numbers::new(7);
    let old: Vec<u8> = (0..1 << 18).flat_map(|_| numbers.next().to_le_bytes()).collect();
    let new = [b"a few bytes more", &old[..]].concat();
    let (old, new) = (file(&place, "old", &old), file(&place, "new", &new));
    let beyond = |cut| Pieces::of(&new, cut).unwrap().beyond(&Pieces::of(&old, cut).unwrap());
    assert_eq!(beyond(Cut::Fixed(4096)), (2 << 20) + 16);
    assert!(beyond(Cut::Content(4096)) < 64 << 10);
    let zeros = file(&place, "zeros", &[0; 40_000]);
    assert_eq!(
        Pieces::of(&zeros, Cut::Fixed(4096)).unwrap().beyond(&Pieces::of(&old, Cut::Fixed(4096)).unwrap()),
        0
    );
}

#[test]
fn an_image_like_the_last_one_has_fewer_new_pieces_than_a_fresh_one() {
    let place = Place::new(&std::env::temp_dir()).unwrap();
    let mut version = Version::of_seed(400, 3);
    let chain = |way, name| Chain {
        way,
        label: name,
        image: place.path(name),
        had: Vec::new(),
        new: vec![Vec::new(); CUTS.len()],
    };
    let mut chains = [chain(Way::Fresh, "fresh"), chain(Way::Like, "like"), chain(Way::InPlace, "in place")];
    for update in 0..3 {
        if update > 0 {
            version.update(3, update);
        }
        chains.iter_mut().for_each(|chain| chain.next(&version, &place).unwrap());
    }
    let at = CUTS.iter().position(|cut| *cut == Cut::Fixed(64 << 10)).unwrap();
    let all = |chain: &Chain| chain.new[at].iter().sum::<f64>();
    let [fresh, like, in_place] = chains.each_ref().map(all);
    assert!(like < fresh / 2.0 && like < in_place, "{fresh} {like} {in_place}");
}
