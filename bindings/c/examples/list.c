/* Lists a directory of an image: `list disk.img /etc`.
 *
 * cc list.c $(pkg-config --cflags --libs platfs) -o list
 */
#include <inttypes.h>
#include <platfs.h>
#include <stdio.h>

static int list(platfs_image *image, const char *path)
{
	struct platfs_entry entry;
	int more;
	platfs_dir *directory = platfs_opendir(image, path);
	if (!directory)
		return -1;
	while ((more = platfs_readdir(directory, &entry)) == 1)
		printf("%10" PRIu64 " %06o %s\n", entry.inode, entry.mode, entry.name);
	platfs_closedir(directory);
	return more;
}

int main(int count, char **words)
{
	platfs_image *image;
	int done;
	if (count != 3) {
		fprintf(stderr, "usage: list IMAGE DIRECTORY\n");
		return 2;
	}
	image = platfs_open(words[1], PLATFS_READ);
	done = image ? list(image, words[2]) : -1;
	if (done < 0)
		fprintf(stderr, "list: %s\n", platfs_error());
	platfs_close(image);
	return done < 0;
}
