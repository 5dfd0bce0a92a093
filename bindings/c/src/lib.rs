//! `libplatfs`: images for C programs. The interface is that of `include/platfs.h`, which says what each function does.
//!
//! | module | owns |
//! | --- | --- |
//! | `failure` | errno and text of the last failure; no panic leaves a function |
//! | `raw` | what C hands over, as references and slices: the contract that makes this sound |
//! | `image` | opening and closing; what is done by paths |
//! | `file` | open files |
//! | `listing` | directories, read name by name |
//! | `facts` | metadata as a struct of C |
//! | `xattr` | extended attributes |
//! | `make` | new volumes, images of trees, the check |
//! | `mount` | mounts that threads of the program serve |
//!
//! Unsafe code stands here because a C program's pointers can't be checked. Each function turns them into references at
//! once, by `raw`; all else is safe.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod facts;
mod failure;
mod file;
mod image;
mod listing;
mod make;
mod mount;
mod raw;
mod xattr;
