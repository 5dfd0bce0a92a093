/* Every function of the library, on a volume of its own: `api DIRECTORY`. Ends with 0, or says which line is wrong. */
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

static char place[4096];

static const char *in(const char *directory, const char *name)
{
	snprintf(place, sizeof place, "%s/%s", directory, name);
	return place;
}

static void files(platfs_image *image)
{
	char buffer[64] = {0};
	struct platfs_stat stat;
	platfs_file *file;
	HOLDS(platfs_mkdirs(image, "/a/b") == 0 && platfs_mkdir(image, "/a/c", 0700) == 0);
	HOLDS(platfs_file_open(image, "/a/f", PLATFS_WRITE) == NULL && errno == ENOENT);
	HOLDS(strstr(platfs_error(), "/a/f") != NULL);
	file = platfs_file_open(image, "/a/f", PLATFS_WRITE | PLATFS_CREATE);
	HOLDS(file != NULL);
	HOLDS(platfs_file_write(file, 0, "hello, world", 12) == 0);
	HOLDS(platfs_file_read(file, 7, buffer, sizeof buffer) == 5 && strcmp(buffer, "world") == 0);
	HOLDS(platfs_file_read(file, 12, buffer, sizeof buffer) == 0);
	HOLDS(platfs_file_write(file, 0, NULL, 0) == 0);
	HOLDS(platfs_file_write(file, 0, NULL, 1) == -1 && errno == EINVAL);
	HOLDS(platfs_file_truncate(file, 5) == 0 && platfs_file_sync(file) == 0);
	HOLDS(platfs_file_stat(file, &stat) == 0 && stat.size == 5 && stat.mode == 0100644 && stat.links == 1);
	platfs_file_close(file);
	HOLDS(platfs_file_open(image, "/a/f", PLATFS_EXCLUSIVE | PLATFS_WRITE) == NULL && errno == EEXIST);
	HOLDS(platfs_file_open(image, "/a", PLATFS_READ) == NULL && errno == EISDIR);
	HOLDS(platfs_file_open(image, "/a/f", 1u << 20) == NULL && errno == EINVAL);
	HOLDS(platfs_stat(image, "/a/c", &stat) == 0 && stat.mode == 0040700);
}

static void names(platfs_image *image)
{
	char buffer[8];
	struct platfs_stat stat;
	HOLDS(platfs_link(image, "/a/f", "/a/g") == 0 && platfs_rename(image, "/a/g", "/a/b/g") == 0);
	HOLDS(platfs_symlink(image, "b/g", "/a/s") == 0);
	HOLDS(platfs_readlink(image, "/a/s", buffer, sizeof buffer) == 3 && memcmp(buffer, "b/g", 3) == 0);
	HOLDS(platfs_readlink(image, "/a/s", NULL, 0) == 3);
	HOLDS(platfs_readlink(image, "/a/s", buffer, 2) == -1 && errno == ERANGE);
	HOLDS(platfs_stat(image, "/a/s", &stat) == 0 && stat.links == 2 && stat.size == 5);
	HOLDS(platfs_lstat(image, "/a/s", &stat) == 0 && (stat.mode & 0170000) == 0120000);
	HOLDS(platfs_chmod(image, "/a/f", 0600) == 0 && platfs_chown(image, "/a/f", 70000, 80000) == 0);
	HOLDS(platfs_utimes(image, "/a/f", 1000000000, 1100000000) == 0);
	HOLDS(platfs_stat(image, "/a/f", &stat) == 0 && stat.mode == 0100600 && stat.uid == 70000);
	HOLDS(stat.gid == 80000 && stat.access.seconds == 1000000000 && stat.modify.seconds == 1100000000);
	HOLDS(platfs_chmod(image, "/a/f", 0100600) == -1 && errno == EINVAL);
	HOLDS(platfs_rmdir(image, "/a") == -1 && errno == ENOTEMPTY);
	HOLDS(platfs_stat(image, NULL, &stat) == -1 && errno == EINVAL);
	HOLDS(platfs_stat(NULL, "/", &stat) == -1 && errno == EINVAL);
}

static void attributes(platfs_image *image)
{
	char value[16] = {0};
	HOLDS(platfs_setxattr(image, "/a/f", "user.note", "seen", 4) == 0);
	HOLDS(platfs_getxattr(image, "/a/f", "user.note", value, sizeof value) == 4 && strcmp(value, "seen") == 0);
	HOLDS(platfs_getxattr(image, "/a/f", "user.other", value, sizeof value) == -1 && errno == ENODATA);
	HOLDS(platfs_listxattr(image, "/a/f", NULL, 0) == 10);
	HOLDS(platfs_listxattr(image, "/a/f", value, sizeof value) == 10 && strcmp(value, "user.note") == 0);
	HOLDS(platfs_removexattr(image, "/a/f", "user.note") == 0);
	HOLDS(platfs_listxattr(image, "/a/f", NULL, 0) == 0);
}

/* Many names are read in pieces. */
static void listings(platfs_image *image)
{
	char path[64];
	struct platfs_entry entry;
	int number, seen = 0, more;
	platfs_dir *directory;
	HOLDS(platfs_mkdirs(image, "/many") == 0);
	for (number = 0; number < 200; number++) {
		platfs_file *file;
		snprintf(path, sizeof path, "/many/file-with-a-longer-name-%d", number);
		file = platfs_file_open(image, path, PLATFS_WRITE | PLATFS_EXCLUSIVE);
		HOLDS(file != NULL);
		platfs_file_close(file);
	}
	directory = platfs_opendir(image, "/many");
	HOLDS(directory != NULL);
	while ((more = platfs_readdir(directory, &entry)) == 1) {
		HOLDS(strncmp(entry.name, "file-with-a-longer-name-", 24) == 0 && entry.mode == 0100000 && entry.inode > 10);
		seen++;
	}
	HOLDS(more == 0 && seen == 200 && platfs_readdir(directory, &entry) == 0);
	platfs_closedir(directory);
	HOLDS(platfs_opendir(image, "/a/f") == NULL && errno == ENOTDIR);
	HOLDS(platfs_remove_all(image, "/many") == 0 && platfs_unlink(image, "/a/s") == 0);
	HOLDS(platfs_rmdir(image, "/a/c") == 0);
}

static void count(const struct platfs_issue *issue, void *data)
{
	HOLDS(strlen(issue->kind) > 2 && strlen(issue->found) > 2 && issue->severity >= 0 && issue->severity <= 3);
	*(int *)data += 1;
}

static void checks(const char *path)
{
	struct platfs_summary summary;
	int issues = 0;
	HOLDS(platfs_check(path, 0, count, &issues, &summary) == 0 && issues == 0 && summary.issues == 0);
	HOLDS(summary.files == 1 && summary.directories == 4 && summary.blocks > summary.blocks_used);
	HOLDS(platfs_check("/nonexistent/image", 0, NULL, NULL, NULL) == -1 && errno == ENOENT);
}

/* Sets the count of free blocks wrong, which no checksum guards in ext2. */
static void repairs(const char *path)
{
	struct platfs_summary summary;
	int issues = 0;
	FILE *image = fopen(path, "r+b");
	HOLDS(image != NULL && fseek(image, 1024 + 12, SEEK_SET) == 0 && fputc(255, image) == 255 && fclose(image) == 0);
	HOLDS(platfs_check(path, 0, count, &issues, NULL) == 1 && issues == 1);
	HOLDS(platfs_check(path, 8, NULL, NULL, NULL) == -1 && errno == EINVAL);
	HOLDS(platfs_check(path, PLATFS_REPAIR, NULL, NULL, &summary) == 0 && summary.repaired == summary.issues);
	HOLDS(summary.repaired == 1 && platfs_check(path, 0, NULL, NULL, NULL) == 0);
}

static void builds(const char *directory)
{
	struct platfs_build_options options = {.type = "ext2", .smallest = 1, .label = "tree"};
	struct platfs_built built;
	char source[4096], image[4096];
	platfs_image *opened;
	snprintf(source, sizeof source, "%s", in(directory, "tree"));
	snprintf(image, sizeof image, "%s", in(directory, "built.img"));
	HOLDS(platfs_build(source, image, &options, &built) == 0);
	HOLDS(built.files == 1 && built.directories >= 1 && built.bytes % built.block_size == 0);
	HOLDS(platfs_build(source, image, &options, NULL) == -1 && errno == EEXIST);
	options.overwrite = 1;
	HOLDS(platfs_build(source, image, &options, NULL) == 0);
	options.type = "ntfs";
	HOLDS(platfs_build(source, image, &options, NULL) == -1 && errno == EINVAL);
	HOLDS(platfs_build("/nonexistent", image, NULL, NULL) == -1 && errno == ENOENT);
	opened = platfs_open(image, PLATFS_READ);
	HOLDS(opened != NULL);
	HOLDS(platfs_unlink(opened, "/note") == -1 && errno == EROFS);
	HOLDS(platfs_close(opened) == 0 && platfs_close(NULL) == 0);
	HOLDS(platfs_mount("/nonexistent/image", directory, NULL) == NULL && errno == ENOENT);
	HOLDS(platfs_mount(image, directory, "frobnicate") == NULL && errno == EINVAL);
	HOLDS(platfs_unmount(NULL) == 0);
	repairs(image);
}

/* A disk with an MBR and one partition from 1 MiB on. */
static void disk(const char *path)
{
	unsigned char sector[512] = {0};
	FILE *file = fopen(path, "wb");
	HOLDS(file != NULL);
	sector[446 + 4] = 0x83;
	sector[446 + 9] = 0x08;  /* sector 2048 */
	sector[446 + 13] = 0x80; /* 32768 sectors */
	sector[510] = 0x55;
	sector[511] = 0xaa;
	HOLDS(fwrite(sector, sizeof sector, 1, file) == 1);
	HOLDS(fseek(file, (17L << 20) - 1, SEEK_SET) == 0 && fputc(0, file) == 0 && fclose(file) == 0);
}

static void parts(const char *directory)
{
	char source[4096], name[4200];
	struct platfs_built built;
	platfs_image *image;
	snprintf(source, sizeof source, "%s", in(directory, "tree"));
	snprintf(name, sizeof name, "%s/disk", directory);
	disk(name);
	HOLDS(platfs_open(name, PLATFS_READ) == NULL);
	strcat(name, "@part1");
	HOLDS(platfs_build(source, name, NULL, &built) == 0 && built.bytes == 16 << 20);
	HOLDS(platfs_check(name, 0, NULL, NULL, NULL) == 0);
	image = platfs_open(name, PLATFS_WRITE);
	HOLDS(image != NULL && platfs_mkdir(image, "/new", 0755) == 0 && platfs_close(image) == 0);
	HOLDS(platfs_mkfs(name, 16 << 20, "ext4") == NULL && errno == EINVAL);
	name[strlen(name) - 1] = '2';
	HOLDS(platfs_open(name, PLATFS_READ) == NULL && errno == ENXIO && strstr(platfs_error(), "part1") != NULL);
}

int main(int words, char **word)
{
	char path[4096];
	platfs_image *image;
	HOLDS(words == 2 && strlen(platfs_version()) >= 5 && strcmp(platfs_error(), "") == 0);
	HOLDS(platfs_open("/nonexistent/image", PLATFS_READ) == NULL && errno == ENOENT);
	HOLDS(strstr(platfs_error(), "/nonexistent/image") != NULL);
	snprintf(path, sizeof path, "%s", in(word[1], "made.img"));
	image = platfs_mkfs(path, 16 << 20, NULL);
	HOLDS(image != NULL);
	HOLDS(platfs_mkfs(path, 16 << 20, NULL) == NULL && errno == EEXIST);
	files(image);
	names(image);
	attributes(image);
	listings(image);
	HOLDS(platfs_sync(image) == 0 && platfs_close(image) == 0);
	checks(path);
	builds(word[1]);
	parts(word[1]);
	puts("all holds");
	return 0;
}
