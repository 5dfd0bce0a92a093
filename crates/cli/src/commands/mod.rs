//! The commands, one module each: arguments and output. What they do is the library's.

mod build;
mod cage;
mod cat;
mod check;
mod chmod;
mod chown;
mod convert;
mod cp;
mod defrag;
mod diff;
mod export;
mod facts;
mod fallocate;
mod frag;
mod freefrag;
mod get;
mod help;
mod image;
#[cfg(feature = "archives")]
mod import;
mod info;
mod into_mount;
mod journal;
mod json;
mod keeping_going;
mod kept;
mod live;
mod ln;
mod ls;
mod map;
mod mkdir;
mod mkfs;
#[cfg(feature = "mount")]
mod mount;
mod mv;
mod out_of_mount;
mod parts;
mod pieces;
mod placing;
#[cfg(feature = "store")]
mod pull;
#[cfg(feature = "store")]
mod push;
mod put;
mod quota;
mod replaced;
mod resize;
mod rm;
mod runs;
mod serve;
mod snapshot;
mod stat;
mod stats;
#[cfg(feature = "store")]
mod store;
mod sync;
mod tree;
mod trim;
mod tune;
mod umount;
mod undelete;
mod version;
mod xattr;

pub use cage::NO_CAGE;
use clap::Subcommand;

use crate::console::{Console, Failure};
use crate::sandbox::{Mode, Plan};

/// A command with its arguments.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Makes an image from a directory, a tar archive, an OCI layout or a docker-save archive.
    Build(Box<build::Build>),
    /// Makes a new, empty volume.
    Mkfs(Box<mkfs::Mkfs>),
    /// Lists directories.
    Ls(ls::Ls),
    /// Draws a directory and all below it.
    Tree(tree::Tree),
    /// Shows everything that is known of files.
    Stat(stat::Stat),
    /// Writes the contents of files to standard output.
    Cat(cat::Cat),
    /// Copies files out.
    Get(get::Get),
    /// Copies files in.
    Put(put::Put),
    /// Copies files inside an image or a mount.
    Cp(cp::Cp),
    /// Unpacks an archive into a directory of an image or a mount.
    #[cfg(feature = "archives")]
    Import(import::Import),
    /// Makes directories.
    Mkdir(mkdir::Mkdir),
    /// Gives a file another name, or makes a symbolic link.
    Ln(ln::Ln),
    /// Renames and moves files.
    Mv(mv::Mv),
    /// Removes files.
    Rm(rm::Rm),
    /// Changes permissions.
    Chmod(chmod::Chmod),
    /// Changes owners.
    Chown(chown::Chown),
    /// Shows and changes extended attributes.
    Xattr(xattr::Xattr),
    /// Gives space to a range of a file, makes it a hole, takes it out or puts it in: of an image, or of a mount.
    Fallocate(fallocate::Fallocate),
    /// Shows and sets what users, groups and projects use and may use: of an image, or of a mount.
    Quota(Box<quota::Quota>),
    /// Shows the superblock, and first what a person wants to know.
    Info(info::Info),
    /// Gives a volume another size.
    Resize(resize::Resize),
    /// Changes parameters and features of a volume, as tune2fs.
    Tune(Box<tune::Tune>),
    /// Lists policies of placement and their parameters; shows and sets what a volume says of them.
    Placement(Box<placing::Placement>),
    /// Checks a volume, and repairs it.
    Check(Box<check::Check>),
    /// Shows what differs between two images, by path or by blocks, or writes it as a layer of an OCI image.
    Diff(diff::Diff),
    /// Counts the pieces that files lie in.
    Frag(frag::Frag),
    /// Maps files by extents, or by block pointers: of an image, or of a mount.
    Convert(convert::Convert),
    /// Brings files together that lie in pieces, and free space: of an image, or of a mount.
    Defrag(defrag::Defrag),
    /// Shows how free space is cut up.
    Freefrag(freefrag::FreeFrag),
    /// Shows how full each part of an image is and where files lie: on the terminal, as a page or as a drawing.
    Map(map::Map),
    /// Shows what lies in the journal: transactions, their blocks, and old copies of a block.
    Journal(journal::Journal),
    /// Lists removed files that can be recovered, and recovers them.
    Undelete(undelete::Undelete),
    /// Writes all files into a tar archive or a directory.
    Export(export::Export),
    /// Gives free space back to the host: of an image, or of a mount.
    Trim(trim::Trim),
    /// Copies the metadata of a volume without contents of files, for reports of errors.
    Image(image::Image),
    /// Copies a volume as it is at one moment: an image, or a mount while programs write.
    Snapshot(snapshot::Snapshot),
    /// Serves an image as a block device by the NBD protocol, for virtual machines.
    Serve(serve::Serve),
    /// Brings an image into an object store: only chunks that are not there travel.
    #[cfg(feature = "store")]
    Push(push::Push),
    /// Makes a file of a volume of an object store.
    #[cfg(feature = "store")]
    Pull(pull::Pull),
    /// Lists, verifies, snapshots, forks and cleans up volumes of an object store.
    #[cfg(feature = "store")]
    Store(store::Store),
    /// Mounts a volume on a directory.
    #[cfg(feature = "mount")]
    Mount(mount::Mount),
    /// Shows what a mount has done, and how long it took.
    Stats(stats::Stats),
    /// Brings all that was written in a mount to the device.
    Sync(sync::Sync),
    /// Unmounts, and waits until the image is free.
    Umount(umount::Umount),
    /// Prints the completions of a shell: of commands, options and files.
    Completions(help::Completions),
    /// Writes the pages of the manual into a directory.
    #[command(hide = true)]
    Man(help::Man),
    /// Explains a command or a topic.
    Help(help::Help),
    /// Says which version this is, and what it was built with.
    Version(version::Version),
}

impl Command {
    /// Does it.
    ///
    /// # Errors
    /// The reason why it was not done; complaints about parts of the work went to the console.
    pub fn run(&self, console: &mut Console<'_>, sandbox: Mode) -> Result<(), Failure> {
        match self {
            Command::Build(command) => command.run(console),
            Command::Mkfs(command) => command.run(console),
            Command::Ls(command) => command.run(console),
            Command::Tree(command) => command.run(console),
            Command::Stat(command) => command.run(console),
            Command::Cat(command) => command.run(console),
            Command::Get(command) => command.run(console),
            Command::Put(command) => command.run(console),
            Command::Cp(command) => command.run(console),
            #[cfg(feature = "archives")]
            Command::Import(command) => command.run(console),
            Command::Quota(command) => command.run(console),
            Command::Mkdir(command) => command.run(console),
            Command::Ln(command) => command.run(console),
            Command::Mv(command) => command.run(console),
            Command::Rm(command) => command.run(console),
            Command::Chmod(command) => command.run(console),
            Command::Chown(command) => command.run(console),
            Command::Xattr(command) => command.run(console),
            Command::Fallocate(command) => command.run(console),
            Command::Info(command) => command.run(console),
            Command::Resize(command) => command.run(console),
            Command::Tune(command) => command.run(console),
            Command::Placement(command) => command.run(console),
            Command::Check(command) => command.run(console),
            Command::Diff(command) => command.run(console),
            Command::Frag(command) => command.run(console),
            Command::Convert(command) => command.run(console),
            Command::Defrag(command) => command.run(console),
            Command::Freefrag(command) => command.run(console),
            Command::Map(command) => command.run(console),
            Command::Journal(command) => command.run(console),
            Command::Undelete(command) => command.run(console),
            Command::Export(command) => command.run(console),
            Command::Trim(command) => command.run(console),
            Command::Image(command) => command.run(console),
            Command::Snapshot(command) => command.run(console),
            Command::Serve(command) => command.run(console, sandbox),
            #[cfg(feature = "store")]
            Command::Push(command) => command.run(console),
            #[cfg(feature = "store")]
            Command::Pull(command) => command.run(console),
            #[cfg(feature = "store")]
            Command::Store(command) => command.run(console),
            #[cfg(feature = "mount")]
            Command::Mount(command) => command.run(console, sandbox),
            Command::Stats(command) => command.run(console),
            Command::Sync(command) => command.run(console),
            Command::Umount(command) => command.run(console),
            Command::Completions(command) => command.run(console),
            Command::Man(command) => command.run(console),
            Command::Help(command) => command.run(console),
            Command::Version(_) => version::Version::run(console),
        }
    }

    /// Tells if it enters a cage by itself, since it has to open things before.
    #[must_use]
    pub fn is_server(&self) -> bool {
        match self {
            #[cfg(feature = "mount")]
            Command::Mount(_) => true,
            Command::Serve(_) => true,
            _ => false,
        }
    }

    /// Returns true if a command without a cage starts no other program and connects to no host. Only `umount` may start
    /// one, fusermount3.
    #[must_use]
    pub fn runs_alone(&self) -> bool {
        !matches!(self, Command::Umount(_))
    }

    /// Plan of the command's cage, where it is about images: a mount's files are seen to by its server.
    #[must_use]
    pub fn cage(&self) -> Option<Plan> {
        match self {
            Command::Ls(command) => command.cage(),
            Command::Tree(command) => command.cage(),
            Command::Stat(command) => command.cage(),
            Command::Cat(command) => command.cage(),
            Command::Info(command) => command.cage(),
            Command::Check(command) => command.cage(),
            Command::Diff(command) => command.cage(),
            Command::Frag(command) => command.cage(),
            Command::Freefrag(command) => command.cage(),
            Command::Map(command) => command.cage(),
            Command::Journal(command) => command.cage(),
            Command::Export(command) => command.cage(),
            Command::Build(command) => command.cage(),
            Command::Mkfs(command) => command.cage(),
            Command::Get(command) => command.cage(),
            Command::Put(command) => command.cage(),
            Command::Cp(command) => command.cage(),
            #[cfg(feature = "archives")]
            Command::Import(command) => command.cage(),
            Command::Mkdir(command) => command.cage(),
            Command::Ln(command) => command.cage(),
            Command::Mv(command) => command.cage(),
            Command::Rm(command) => command.cage(),
            Command::Chmod(command) => command.cage(),
            Command::Chown(command) => command.cage(),
            Command::Xattr(command) => command.cage(),
            Command::Fallocate(command) => command.cage(),
            Command::Quota(command) => command.cage(),
            Command::Resize(command) => command.cage(),
            Command::Tune(command) => command.cage(),
            Command::Placement(command) => command.cage(),
            Command::Convert(command) => command.cage(),
            Command::Defrag(command) => command.cage(),
            Command::Undelete(command) => command.cage(),
            Command::Trim(command) => command.cage(),
            Command::Image(command) => command.cage(),
            Command::Snapshot(command) => command.cage(),
            #[cfg(feature = "store")]
            Command::Push(command) => command.cage(),
            #[cfg(feature = "store")]
            Command::Pull(command) => command.cage(),
            #[cfg(feature = "store")]
            Command::Store(command) => command.cage(),
            _ => None,
        }
    }
}
