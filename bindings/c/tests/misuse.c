/* What programs do wrong: each function with NULL, with wrong flags and lengths, with names that are no text, and after the
 * image is closed: `misuse DIRECTORY`. Ends with 0, or says which line is wrong. */
#include <errno.h>
#include <platfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDS(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, platfs_error()); \
			exit(1); \
		} \
	} while (0)

/* A call that must fail with a number and a text. */
#define FAILS(call, number) HOLDS((errno = 0, (call)) == -1 && errno == (number) && platfs_error()[0] != '\0')
#define NONE(call, number) HOLDS((errno = 0, (call)) == NULL && errno == (number) && platfs_error()[0] != '\0')

/* The image is NULL, or the path is. */
static void no_image(platfs_image *image)
{
	struct platfs_stat stat;
	char buffer[8];
	platfs_image *images[2];
	const char *paths[2];
	int at;
	images[0] = NULL, paths[0] = "/";
	images[1] = image, paths[1] = NULL;
	for (at = 0; at < 2; at++) {
		FAILS(platfs_stat(images[at], paths[at], &stat), EINVAL);
		FAILS(platfs_lstat(images[at], paths[at], &stat), EINVAL);
		FAILS(platfs_readlink(images[at], paths[at], buffer, sizeof buffer), EINVAL);
		NONE(platfs_opendir(images[at], paths[at]), EINVAL);
		NONE(platfs_file_open(images[at], paths[at], PLATFS_READ), EINVAL);
		FAILS(platfs_mkdir(images[at], paths[at], 0755), EINVAL);
		FAILS(platfs_mkdirs(images[at], paths[at]), EINVAL);
		FAILS(platfs_unlink(images[at], paths[at]), EINVAL);
		FAILS(platfs_rmdir(images[at], paths[at]), EINVAL);
		FAILS(platfs_remove_all(images[at], paths[at]), EINVAL);
		FAILS(platfs_rename(images[at], paths[at], "/x"), EINVAL);
		FAILS(platfs_link(images[at], paths[at], "/x"), EINVAL);
		FAILS(platfs_symlink(images[at], paths[at], "/x"), EINVAL);
		FAILS(platfs_chmod(images[at], paths[at], 0644), EINVAL);
		FAILS(platfs_chown(images[at], paths[at], 0, 0), EINVAL);
		FAILS(platfs_utimes(images[at], paths[at], 0, 0), EINVAL);
		FAILS(platfs_getxattr(images[at], paths[at], "user.a", buffer, sizeof buffer), EINVAL);
		FAILS(platfs_listxattr(images[at], paths[at], buffer, sizeof buffer), EINVAL);
		FAILS(platfs_setxattr(images[at], paths[at], "user.a", "b", 1), EINVAL);
		FAILS(platfs_removexattr(images[at], paths[at], "user.a"), EINVAL);
	}
	FAILS(platfs_rename(image, "/x", NULL), EINVAL);
	FAILS(platfs_link(image, "/x", NULL), EINVAL);
	FAILS(platfs_symlink(image, "/x", NULL), EINVAL);
	FAILS(platfs_stat(image, "/", NULL), EINVAL);
	FAILS(platfs_lstat(image, "/", NULL), EINVAL);
	FAILS(platfs_sync(NULL), EINVAL);
	FAILS(platfs_getxattr(image, "/", NULL, buffer, sizeof buffer), EINVAL);
	FAILS(platfs_setxattr(image, "/", NULL, "b", 1), EINVAL);
	FAILS(platfs_removexattr(image, "/", NULL), EINVAL);
	HOLDS(platfs_close(NULL) == 0);
}

/* Files and directories that are NULL, and buffers that are. */
static void no_handles(platfs_image *image)
{
	struct platfs_stat stat;
	struct platfs_entry entry;
	platfs_file *file = platfs_file_open(image, "/f", PLATFS_WRITE | PLATFS_CREATE);
	platfs_dir *directory = platfs_opendir(image, "/");
	HOLDS(file != NULL && directory != NULL);
	FAILS(platfs_file_read(NULL, 0, &stat, 1), EINVAL);
	FAILS(platfs_file_write(NULL, 0, "a", 1), EINVAL);
	FAILS(platfs_file_truncate(NULL, 0), EINVAL);
	FAILS(platfs_file_stat(NULL, &stat), EINVAL);
	FAILS(platfs_file_sync(NULL), EINVAL);
	FAILS(platfs_readdir(NULL, &entry), EINVAL);
	FAILS(platfs_readdir(directory, NULL), EINVAL);
	FAILS(platfs_file_stat(file, NULL), EINVAL);
	FAILS(platfs_file_read(file, 0, NULL, 1), EINVAL);
	FAILS(platfs_file_read(file, 0, &stat, (size_t)-1), EINVAL);
	FAILS(platfs_file_write(file, 0, "a", (size_t)-1), EINVAL);
	HOLDS(platfs_file_read(file, UINT64_MAX, &stat, 1) == 0 && platfs_file_read(file, 0, NULL, 0) == 0);
	FAILS(platfs_file_write(file, UINT64_MAX, "a", 1), EFBIG);
	FAILS(platfs_file_truncate(file, UINT64_MAX), EFBIG);
	platfs_file_close(NULL);
	platfs_closedir(NULL);
	platfs_closedir(directory);
	platfs_file_close(file);
}

/* Buffers that are too short. */
static void short_buffers(platfs_image *image)
{
	char buffer[4] = "....";
	HOLDS(platfs_symlink(image, "/target", "/link") == 0 && platfs_setxattr(image, "/f", "user.long", "value", 5) == 0);
	FAILS(platfs_readlink(image, "/link", buffer, 4), ERANGE);
	FAILS(platfs_getxattr(image, "/f", "user.long", buffer, 4), ERANGE);
	FAILS(platfs_listxattr(image, "/f", buffer, 4), ERANGE);
	HOLDS(memcmp(buffer, "....", 4) == 0);
	FAILS(platfs_readlink(image, "/link", NULL, 4), EINVAL);
	FAILS(platfs_getxattr(image, "/f", "user.long", NULL, 4), EINVAL);
	FAILS(platfs_listxattr(image, "/f", NULL, 4), EINVAL);
	HOLDS(platfs_readlink(image, "/link", NULL, 0) == 7 && platfs_getxattr(image, "/f", "user.long", NULL, 0) == 5);
	FAILS(platfs_setxattr(image, "/f", "nonsense", "a", 1), EOPNOTSUPP);
	FAILS(platfs_setxattr(image, "/f", "user.null", NULL, 1), EINVAL);
	FAILS(platfs_readlink(image, "/f", buffer, 4), EINVAL);
}

/* Names that are no UTF-8 are names; those that no file can have are errors. */
static void names(platfs_image *image)
{
	char longest[300];
	struct platfs_stat stat;
	struct platfs_entry entry;
	int seen = 0;
	platfs_dir *directory;
	HOLDS(platfs_mkdir(image, "/\xff\xfe", 0700) == 0 && platfs_mkdir(image, "/\xff\xfe/\x80", 0700) == 0);
	directory = platfs_opendir(image, "/\xff\xfe");
	HOLDS(directory != NULL);
	while (platfs_readdir(directory, &entry) == 1)
		seen += strcmp(entry.name, "\x80") == 0;
	platfs_closedir(directory);
	HOLDS(seen == 1);
	FAILS(platfs_stat(image, "/\xff", &stat), ENOENT);
	HOLDS(strstr(platfs_error(), "\xff") == NULL);
	memset(longest, 'n', sizeof longest);
	longest[0] = '/', longest[299] = '\0';
	FAILS(platfs_mkdir(image, longest, 0700), ENAMETOOLONG);
	FAILS(platfs_mkdir(image, "", 0700), EINVAL);
	FAILS(platfs_mkdir(image, "/..", 0700), EINVAL);
	FAILS(platfs_mkdir(image, "/m", 010000), EINVAL);
	FAILS(platfs_rmdir(image, "/f"), ENOTDIR);
	FAILS(platfs_unlink(image, "/\xff\xfe"), EISDIR);
	FAILS(platfs_rename(image, "/\xff\xfe", "/\xff\xfe/in-itself"), EINVAL);
}

/* Images that can't be opened, made, built or checked. */
static void images(const char *directory)
{
	char text[4096], made[4096];
	struct platfs_build_options options = {.size = 1 << 20, .smallest = 1};
	FILE *file;
	snprintf(text, sizeof text, "%s/no-image", directory);
	snprintf(made, sizeof made, "%s/not-made.img", directory);
	file = fopen(text, "w");
	HOLDS(file != NULL && fputs("this is no image\n", file) >= 0 && fclose(file) == 0);
	NONE(platfs_open(NULL, PLATFS_READ), EINVAL);
	NONE(platfs_open(text, 1u << 30), EINVAL);
	HOLDS((errno = 0, platfs_open(text, PLATFS_READ)) == NULL && errno != 0);
	HOLDS((errno = 0, platfs_open(directory, PLATFS_READ)) == NULL && errno != 0);
	NONE(platfs_mkfs(NULL, 16 << 20, NULL), EINVAL);
	NONE(platfs_mkfs(made, 16 << 20, "ntfs"), EINVAL);
	HOLDS((errno = 0, platfs_mkfs(text, 16 << 20, NULL)) == NULL && errno == EEXIST);
	FAILS(platfs_build(NULL, made, NULL, NULL), EINVAL);
	FAILS(platfs_build(directory, NULL, NULL, NULL), EINVAL);
	FAILS(platfs_build(directory, made, &options, NULL), EINVAL);
	FAILS(platfs_build(text, made, NULL, NULL), EINVAL);
	FAILS(platfs_check(NULL, 0, NULL, NULL, NULL), EINVAL);
	FAILS(platfs_check(text, 1u << 30, NULL, NULL, NULL), EINVAL);
	HOLDS((errno = 0, platfs_check(text, 0, NULL, NULL, NULL)) != 0);
	file = fopen(made, "r");
	HOLDS(file == NULL);
}

/* A file that is open keeps its image; a second writer is kept off until it is closed. */
static void closed_early(const char *path)
{
	char buffer[8] = {0};
	platfs_image *image = platfs_open(path, PLATFS_WRITE);
	platfs_file *file;
	HOLDS(image != NULL);
	file = platfs_file_open(image, "/f", PLATFS_WRITE);
	HOLDS(file != NULL);
	FAILS(platfs_close(image), EINVAL);
	HOLDS(platfs_file_write(file, 0, "kept", 4) == 0 && platfs_file_read(file, 0, buffer, 8) == 4);
	HOLDS((errno = 0, platfs_open(path, PLATFS_WRITE)) == NULL && errno != 0);
	platfs_file_close(file);
	HOLDS(platfs_check(path, 0, NULL, NULL, NULL) == 0);
	image = platfs_open(path, PLATFS_READ);
	HOLDS(image != NULL);
	FAILS(platfs_file_write(NULL, 0, "a", 1), EINVAL);
	NONE(platfs_file_open(image, "/new", PLATFS_WRITE | PLATFS_CREATE), EROFS);
	file = platfs_file_open(image, "/f", PLATFS_READ);
	HOLDS(file != NULL && platfs_file_read(file, 0, buffer, 8) == 4 && strcmp(buffer, "kept") == 0);
	FAILS(platfs_file_write(file, 0, "a", 1), EROFS);
	platfs_file_close(file);
	HOLDS(platfs_close(image) == 0);
}

int main(int words, char **word)
{
	char path[4096];
	platfs_image *image;
	HOLDS(words == 2);
	snprintf(path, sizeof path, "%s/misused.img", word[1]);
	image = platfs_mkfs(path, 16 << 20, "ext4");
	HOLDS(image != NULL);
	no_image(image);
	no_handles(image);
	short_buffers(image);
	names(image);
	images(word[1]);
	HOLDS(platfs_close(image) == 0);
	closed_early(path);
	puts("all holds");
	return 0;
}
