/* Mounts an image until a line is read: `mount disk.img /mnt noatime`.
 *
 * cc mount.c $(pkg-config --cflags --libs platfs) -o mount
 */
#include <platfs.h>
#include <stdio.h>

int main(int count, char **words)
{
	platfs_mounted *mounted = count < 3 ? NULL : platfs_mount(words[1], words[2], words[3]);
	if (!mounted) {
		fprintf(stderr, "mount: %s\n", count < 3 ? "usage: mount IMAGE DIRECTORY [OPTIONS]" : platfs_error());
		return 2;
	}
	getchar();
	if (platfs_unmount(mounted) == 0)
		return 0;
	fprintf(stderr, "mount: %s\n", platfs_error());
	return 1;
}
