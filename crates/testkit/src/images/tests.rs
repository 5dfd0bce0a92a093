use super::{all, golden};
use std::collections::BTreeSet;

#[test]
fn every_recipe_keeps_its_premise() {
    // The premise is checked when an image is made; here every one that this machine can make is made.
    for recipe in all() {
        golden("reference images", recipe.name);
    }
}

#[test]
fn names_are_different() {
    let names: BTreeSet<_> = all().iter().map(|recipe| recipe.name).collect();
    assert_eq!(names.len(), all().len());
}
