//! Blocks placed by a policy of one's own: here the worst there is, so that the difference shows.
//!
//! `cargo run -p platfs --example policy`
//!
//! A policy only chooses; the engine verifies each choice. It can make a volume slow, never unsound.

use std::error::Error;

use platfs::placement::policy::{BlockPolicy, Choice};
use platfs::placement::{Refusal, Request, View};
use platfs::{Image, OpenOptions, State, device::MemoryDevice, mkfs};

/// Gives away one cluster at a time, each some way behind the last one of the file.
pub struct Scatter;

impl BlockPolicy for Scatter {
    fn choose(&self, view: &View<'_>, request: &Request) -> Result<Choice, Refusal> {
        let one = Request { want: 1, min: 1, ..*request };
        let mut goal = request.goal;
        if request.extends {
            goal.0 += 16;
        }
        // Behind the goal, else anywhere.
        for from in [goal, ondisk::units::Cluster(0)] {
            if let Some(start) = view.next_fit(&one, from)? {
                return Ok(Choice::free(start, 1));
            }
        }
        Err(Refusal::NoSpace)
    }
}

/// In how many pieces a file of 1 MiB lies that was written under some options.
///
/// # Errors
/// None here.
pub fn pieces(options: &OpenOptions) -> Result<usize, Box<dyn Error>> {
    let device = std::sync::Arc::new(MemoryDevice::new(64 << 20));
    let image = Image::format(device, &mkfs::Options::new(mkfs::FsType::Ext4), options)?;
    image.write("/file", vec![7; 1 << 20])?;
    let map = image.volume().map(image.inode_of("/file")?)?;
    let segments: Result<Vec<_>, _> = map.collect();
    Ok(segments?.iter().filter(|segment| matches!(segment.state, State::Mapped(_))).count())
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("our default: {} piece(s)", pieces(&OpenOptions::new())?);
    println!("scattered: {} pieces", pieces(&OpenOptions::new().own_policy(|| Box::new(Scatter)))?);
    Ok(())
}
