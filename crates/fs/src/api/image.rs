//! An image: opening, making and closing it.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use ondisk::inode::Timestamp;
use ondisk::units::InodeNumber;

use super::dir::Dir;
use super::handle::{Node, Shared, close};
use crate::device::{Device, FileDevice, MemoryDevice};
use crate::error::{Error, Result};
use crate::mkfs::{FsType, Options as FormatOptions, Plan};
use crate::options::OpenOptions;
use crate::volume::Volume;

/// An open image. It is used as its root directory: all methods of [`Dir`] work here, with paths from the root.
///
/// An image can be cloned and used by several threads. A volume that was written is closed cleanly when the last clone
/// and the last open file and directory are dropped. [`Image::close`] does the same and reports failures.
///
/// ```no_run
/// let image = platfs::Image::open("disk.img")?;
/// println!("{}", image.read_to_string("/etc/os-release")?);
/// for entry in image.read_dir("/etc")? {
///     println!("{}", String::from_utf8_lossy(entry?.name()));
/// }
/// # Ok::<(), platfs::Error>(())
/// ```
#[derive(Clone)]
pub struct Image {
    root: Dir,
}

impl Image {
    /// Opens an image file or a block device to read. A journal that waits is replayed in memory.
    ///
    /// ```no_run
    /// let image = platfs::Image::open("disk.img")?;
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().open(path)
    }

    /// Opens the volume on any device.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use platfs::{Image, OpenOptions, device::MemoryDevice, mkfs};
    ///
    /// let device = Arc::new(MemoryDevice::new(8 << 20));
    /// Image::format(device.clone(), &mkfs::Options::new(mkfs::FsType::Ext2), &OpenOptions::new())?.close()?;
    /// let image = Image::on(device, &OpenOptions::new())?;
    /// assert!(image.metadata("/lost+found")?.is_dir());
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn on(device: Arc<dyn Device>, options: &OpenOptions) -> Result<Self> {
        let shared = Shared::new(Volume::open(device, options)?);
        let root = Node::new(&shared, InodeNumber::ROOT)?;
        Ok(Image { root: Dir::new(root) })
    }

    /// Makes an empty volume on a device, of the device's size, and opens it for writing.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use platfs::{Image, OpenOptions, device::MemoryDevice, mkfs};
    ///
    /// let format = mkfs::Options::new(mkfs::FsType::Ext3);
    /// let image = Image::format(Arc::new(MemoryDevice::new(8 << 20)), &format, &OpenOptions::new())?;
    /// image.write("/a", b"abc")?;
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// Options that don't fit each other or the size; as [`Image::on`].
    pub fn format(device: Arc<dyn Device>, format: &FormatOptions, options: &OpenOptions) -> Result<Self> {
        Plan::new(format, device.size())?.write(&*device)?;
        Self::on(device, &options.clone().write(true))
    }

    /// Makes a new file with an empty volume of `bytes` bytes in it, and opens it for writing. A file that exists is left
    /// alone.
    ///
    /// ```
    /// # let scratch = testkit::scratch::Scratch::new("format-file");
    /// # let path = scratch.join("new.img");
    /// use platfs::{Image, OpenOptions, mkfs};
    ///
    /// let format = mkfs::Options::new(mkfs::FsType::Ext4);
    /// let image = Image::format_file(&path, 16 << 20, &format, &OpenOptions::new())?;
    /// image.write("/hello", b"hello\n")?;
    /// image.close()?;
    /// assert_eq!(Image::open(&path)?.read("/hello")?, b"hello\n");
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// The file exists or can't be made; as [`Image::format`], which leaves an unfinished file.
    #[expect(
        clippy::disallowed_methods,
        reason = "the word of the program that uses this library, on any system"
    )]
    pub fn format_file(
        path: impl AsRef<Path>,
        bytes: u64,
        format: &FormatOptions,
        options: &OpenOptions,
    ) -> Result<Self> {
        let path = path.as_ref();
        let made = fs::File::options().read(true).write(true).create_new(true).open(path);
        let device = made
            .and_then(|file| file.set_len(bytes).map(|()| file))
            .and_then(FileDevice::locked)
            .map_err(|error| Error::io(format!("making {}", path.display()), error))?;
        Self::format(Arc::new(device), format, options)
    }

    /// An empty ext4 volume of `bytes` bytes in memory, open for writing: for tests, and to try things.
    ///
    /// ```
    /// let image = platfs::Image::in_memory(8 << 20)?;
    /// image.create_dir_all("/a/b")?;
    /// image.write("/a/b/c", b"contents")?;
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// Too few bytes for a volume.
    pub fn in_memory(bytes: u64) -> Result<Self> {
        let device = Arc::new(MemoryDevice::new(bytes));
        Self::format(device, &FormatOptions::new(FsType::Ext4), &OpenOptions::new())
    }

    /// The volume, for verbs that have no path: by inode number.
    ///
    /// ```
    /// let image = platfs::Image::in_memory(8 << 20)?;
    /// assert_eq!(image.volume().superblock().s_rev_level.get(), 1);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    #[must_use]
    pub fn volume(&self) -> &Volume {
        self.root.volume()
    }

    /// The root directory, as a handle of its own.
    ///
    /// ```
    /// let image = platfs::Image::in_memory(8 << 20)?;
    /// let root: platfs::Dir = image.root();
    /// assert!(root.exists("lost+found")?);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    #[must_use]
    pub fn root(&self) -> Dir {
        self.root.clone()
    }

    /// Returns a handle of this image at another time: changes made by it, and by files and directories opened from
    /// it, get this time. The library reads no clock.
    ///
    /// ```
    /// use platfs::Timestamp;
    ///
    /// let image = platfs::Image::in_memory(8 << 20)?;
    /// let later = image.at_time(Timestamp::from_seconds(1_700_000_000))?;
    /// later.write("/a", b"")?;
    /// assert_eq!(image.metadata("/a")?.times.modify.seconds, 1_700_000_000);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// None on an image that is open.
    pub fn at_time(&self, now: Timestamp) -> Result<Self> {
        let shared = self.root.shared().at_time(now);
        Ok(Image { root: Dir::new(Node::new(&shared, InodeNumber::ROOT)?) })
    }

    /// Makes everything stable.
    ///
    /// ```
    /// let image = platfs::Image::in_memory(8 << 20)?;
    /// image.write("/a", b"")?;
    /// image.sync()?;
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn sync(&self) -> Result<()> {
        self.volume().sync()
    }

    /// Makes everything stable and marks the volume as closed cleanly.
    ///
    /// ```
    /// let image = platfs::Image::in_memory(8 << 20)?;
    /// image.write("/a", b"")?;
    /// image.close()?;
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] while clones of the image, or files or directories of it, are open: the last of them closes the
    /// volume. As [`Volume::sync`].
    pub fn close(self) -> Result<()> {
        let shared = Arc::clone(self.root.shared());
        drop(self);
        close(&shared)
    }
}

/// The methods of [`Dir`], with paths from the root.
impl Deref for Image {
    type Target = Dir;

    fn deref(&self) -> &Dir {
        &self.root
    }
}

impl OpenOptions {
    /// Opens an image file or a block device. An image that is opened for writing is locked (`flock`), so that no second
    /// writer can open it: another program with this library, the command `plat`, its mounts. A mount by the kernel is not
    /// noticed.
    ///
    /// ```no_run
    /// use platfs::{OpenOptions, Timestamp};
    ///
    /// let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    /// let now = Timestamp { seconds: now.as_secs().cast_signed(), nanoseconds: now.subsec_nanos() };
    /// let image = OpenOptions::new().write(true).now(now).open("disk.img")?;
    /// image.write("/etc/hostname", b"guest\n")?;
    /// image.close()?;
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// A file that can't be opened, or that another writer has locked; as [`Volume::open`].
    #[expect(
        clippy::disallowed_methods,
        reason = "the word of the program that uses this library, on any system"
    )]
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Image> {
        let path = path.as_ref();
        let opened = fs::metadata(path).and_then(|facts| not_special(&facts));
        let device = opened
            .and_then(|()| fs::File::options().read(true).write(self.write).open(path))
            .and_then(|file| if self.write { FileDevice::locked(file) } else { FileDevice::new(file) })
            .map_err(|error| Error::io(format!("opening {}", path.display()), error))?;
        Image::on(Arc::new(device), self)
    }
}

/// Refuses a pipe, which would be waited for, and what else holds no volume.
fn not_special(facts: &fs::Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = facts.file_type();
        if kind.is_fifo() || kind.is_char_device() || kind.is_socket() {
            let what = "is a special file, not a file or block device";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
    }
    let _ = facts;
    Ok(())
}
