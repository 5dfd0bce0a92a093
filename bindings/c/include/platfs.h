/*
 * platfs: ext2, ext3 and ext4 images, read, changed, built, checked and mounted without the kernel's driver. Only
 * platfs_mount needs root, or fusermount3.
 *
 * Failures. A function that can fail returns -1, or NULL where it returns a pointer. Then errno has the number that Linux
 * would give (ENOENT, ENOSPC, EUCLEAN for a broken structure, ...), and platfs_error() the text. No function ends the
 * program.
 *
 * Pointers. Every pointer must be valid during the call. Texts end with NUL. NULL is an error (EINVAL) unless the function
 * says otherwise. What a function gives away is freed by the close function of its type, and used by nobody afterwards.
 *
 * Threads. An image and its files can be used by several threads at once. A directory that is being read is for one.
 *
 * Paths in an image begin at its root, with or without a slash. Symbolic links never lead out of the image.
 */
#ifndef PLATFS_H
#define PLATFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct platfs_image platfs_image; /* an open image */
typedef struct platfs_file platfs_file;   /* an open file; it keeps its image open */
typedef struct platfs_dir platfs_dir;     /* a directory that is being read */
typedef struct platfs_mounted platfs_mounted; /* a mount that threads of the program serve */

/* Flags of platfs_open and platfs_file_open. */
#define PLATFS_READ 0u
#define PLATFS_WRITE 1u      /* open to change */
#define PLATFS_FORCE 2u      /* an image: also if it is marked as having errors */
#define PLATFS_CREATE 4u     /* a file: make it if it is missing */
#define PLATFS_EXCLUSIVE 8u  /* a file: make it; one that exists is an error */
#define PLATFS_TRUNCATE 16u  /* a file: remove what is in it */

/* The text of this thread's last failure, until its next one. Never NULL. */
const char *platfs_error(void);
/* The version of the library. */
const char *platfs_version(void);

/* ---- Images ---- */

/* Opens an image file, a block device, or a part of either: "disk.img@part2" is its second partition,
 * "disk.img@part:root" the one that the GPT calls so, "disk.img@1M" what begins there; a file that really has such a
 * name wins. A journal that waits is replayed: in memory only, unless PLATFS_WRITE is set. A file that is open to change
 * is locked. */
platfs_image *platfs_open(const char *path, unsigned int flags);
/* Makes a new file of `bytes` bytes with an empty volume: "ext2", "ext3" or "ext4" (NULL is ext4), and opens it to change.
 * A file that exists is an error. */
platfs_image *platfs_mkfs(const char *path, uint64_t bytes, const char *type);
/* Makes stable all that was written. */
int platfs_sync(const platfs_image *image);
/* Closes and frees an image, also on failure; NULL is nothing. EINVAL if files or directories of it are still open: they
 * stay usable, and the last of them closes the volume and marks it clean. */
int platfs_close(platfs_image *image);

/* ---- Facts ---- */

struct platfs_time {
	int64_t seconds; /* since 1970 */
	uint32_t nanoseconds;
};

struct platfs_stat {
	uint64_t inode;
	uint64_t size;    /* bytes */
	uint64_t sectors; /* units of 512 bytes on the volume */
	uint32_t mode;    /* type and permissions, as st_mode */
	uint32_t links;
	uint32_t uid;
	uint32_t gid;
	uint32_t major; /* of a device file */
	uint32_t minor;
	struct platfs_time access;
	struct platfs_time modify;
	struct platfs_time change;
	struct platfs_time create; /* 0 if the volume does not know */
};

int platfs_stat(const platfs_image *image, const char *path, struct platfs_stat *stat);
/* A symbolic link at the end of the path is not followed. */
int platfs_lstat(const platfs_image *image, const char *path, struct platfs_stat *stat);
/* Where a symbolic link leads: the length without a NUL, which is not written. ERANGE if `len` is too small; only the
 * length if `len` is 0. */
ssize_t platfs_readlink(const platfs_image *image, const char *path, char *target, size_t len);

/* ---- Directories ---- */

struct platfs_entry {
	uint64_t inode;
	uint32_t mode;    /* only the type, as in st_mode */
	const char *name; /* until the next call with the same directory */
};

platfs_dir *platfs_opendir(const platfs_image *image, const char *path);
/* The next name but "." and "..": 1, or 0 at the end. */
int platfs_readdir(platfs_dir *directory, struct platfs_entry *entry);
/* NULL is nothing. */
void platfs_closedir(platfs_dir *directory);

/* ---- Files ---- */

platfs_file *platfs_file_open(const platfs_image *image, const char *path, unsigned int flags);
/* Reads at most `len` bytes: how many, 0 at the end of the file. */
ssize_t platfs_file_read(const platfs_file *file, uint64_t offset, void *buffer, size_t len);
/* Writes all `len` bytes. */
int platfs_file_write(const platfs_file *file, uint64_t offset, const void *data, size_t len);
int platfs_file_truncate(const platfs_file *file, uint64_t size);
int platfs_file_stat(const platfs_file *file, struct platfs_stat *stat);
int platfs_file_sync(const platfs_file *file);
/* NULL is nothing. */
void platfs_file_close(platfs_file *file);

/* ---- Changes by path ---- */

int platfs_mkdir(const platfs_image *image, const char *path, unsigned int mode);
/* With the directories above it; one that exists is no error. */
int platfs_mkdirs(const platfs_image *image, const char *path);
int platfs_unlink(const platfs_image *image, const char *path);
int platfs_rmdir(const platfs_image *image, const char *path);
/* A directory and all below it. */
int platfs_remove_all(const platfs_image *image, const char *path);
int platfs_rename(const platfs_image *image, const char *from, const char *to);
int platfs_link(const platfs_image *image, const char *original, const char *path);
int platfs_symlink(const platfs_image *image, const char *target, const char *path);
int platfs_chmod(const platfs_image *image, const char *path, unsigned int mode);
int platfs_chown(const platfs_image *image, const char *path, uint32_t uid, uint32_t gid);
/* Seconds since 1970. */
int platfs_utimes(const platfs_image *image, const char *path, int64_t access, int64_t modify);

/* ---- Extended attributes; names with their prefix, as "user.note" ---- */

/* The length of the value. ERANGE if `len` is too small; only the length if `len` is 0; ENODATA if there is none. */
ssize_t platfs_getxattr(const platfs_image *image, const char *path, const char *name, void *value, size_t len);
/* The names, each with a NUL behind it; lengths as above. */
ssize_t platfs_listxattr(const platfs_image *image, const char *path, char *names, size_t len);
int platfs_setxattr(const platfs_image *image, const char *path, const char *name, const void *value, size_t len);
int platfs_removexattr(const platfs_image *image, const char *path, const char *name);

/* ---- Images of trees ---- */

/* Zeros are the defaults. */
struct platfs_build_options {
	const char *type;  /* "ext2", "ext3", "ext4"; NULL is ext4 */
	uint64_t size;     /* bytes; 0: the contents and a tenth more */
	int smallest;      /* as small as it can be */
	int overwrite;     /* replace a file that exists */
	const char *label; /* at most 16 bytes; NULL for none */
};

struct platfs_built {
	uint64_t bytes;
	uint64_t files;
	uint64_t directories;
	uint64_t free_blocks;
	uint32_t block_size;
};

/* Makes an image of a directory, a tar archive (plain, gzip, zstd, xz), an OCI layout or a docker-save archive. The file
 * appears whole or not at all. `options` and `built` may be NULL. */
int platfs_build(const char *source, const char *image, const struct platfs_build_options *options,
                 struct platfs_built *built);

/* ---- The check ---- */

#define PLATFS_REPAIR 1u /* repair all that is wrong */

struct platfs_issue {
	const char *kind;   /* `plat check --explain KIND` says more */
	const char *found;
	const char *repair;
	int severity;       /* 0 untidy, 1 wrong, 2 damage, 3 the volume can't be used */
	uint64_t inode;     /* 0 if it is about none */
};

struct platfs_summary {
	uint64_t issues;
	uint64_t repaired;
	uint64_t files;
	uint64_t directories;
	uint64_t blocks_used;
	uint64_t blocks;
};

/* Called for each issue, with texts that live until it returns. It must return: no longjmp, no exception. */
typedef void (*platfs_issue_call)(const struct platfs_issue *issue, void *data);

/* Checks a volume: 0 if nothing is wrong in the end, 1 if something is. Nothing is written without PLATFS_REPAIR. `call`
 * and `summary` may be NULL. */
int platfs_check(const char *path, unsigned int flags, platfs_issue_call call, void *data,
                 struct platfs_summary *summary);

/* ---- Mounts ---- */

/* Mounts an image on a directory of the host, and serves it on threads of this program. It needs root, or fusermount3.
 * `options` are the words of `plat mount -o`, with commas between, as "ro,noatime"; NULL for none. Without "rw" an image
 * that can't be written is mounted for reading. A program that ends without platfs_unmount leaves a mount that nobody
 * serves. */
platfs_mounted *platfs_mount(const char *image, const char *directory, const char *options);
/* Unmounts a volume, closes it and frees the mount; NULL is nothing. On EBUSY the volume stays mounted, mostly because
 * files are open in it: nothing is freed, and this can be called again. Any other failure is about what could not be
 * stored, and the mount is freed. */
int platfs_unmount(platfs_mounted *mounted);

#ifdef __cplusplus
}
#endif

#endif
