//! `plat`: the command line of platfs.
fn main() {}
