//! Around a check of a volume: what is kept of it and shown, questions, and being called
//! as fsck(8) calls its helpers. What is wrong and how it is repaired is the library's.

pub mod ask;
pub mod e2fsck;
pub mod examine;
pub mod explain;
pub mod facts;
pub mod findings;
pub mod fsck;
pub mod progress;
pub mod report;
pub mod spread;
pub mod stop;
