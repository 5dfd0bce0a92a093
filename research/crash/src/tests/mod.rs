//! Runs that are made by hand, and that runs are functions of their seeds.

mod by_hand;
mod changing;
mod large;
mod repeat;
