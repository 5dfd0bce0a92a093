//! Workloads in each order, planted faults, runs that are made by hand, and that runs are functions of their seeds.

mod by_hand;
mod changing;
mod faults;
mod large;
mod orders;
mod repeat;
