# One word per job; each is a thin line over cargo or a script, so that what CI runs is what you run.

CARGO ?= cargo
FUZZ_SECONDS ?= 60
CRASH_STATES ?= 100000
CRASHES ?= 1000
MINUTES ?= 60
PREFIX ?= /usr/local
DESTDIR ?=
# Where mount(8) looks for its helpers: /sbin, and nowhere else. On most systems this is a link to usr/sbin.
HELPERS ?= $(shell [ -L /sbin ] && echo /usr/sbin || echo /sbin)
# Where cargo puts what it builds.
TARGET = $(or $(CARGO_TARGET_DIR),target)
# The command that `make install-files` installs.
PLAT ?= $(TARGET)/release/plat
# Where the library lies that `make install-c-files` installs.
LIBDIR ?= $(TARGET)/release
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

.PHONY: all build install install-files install-helpers install-c install-c-files python web web-test test long store-test crash crash-kernel models demo microvm book bench soak mix in-cage count-calls coverage packages setup fmt lint docs deny fuzz images tidy static features deb container targets targets-test

all: build

# The optimised `plat`, as users get it.
build:
	$(CARGO) build --release -p platfs-cli --features gs,az

# The command with its manual and completions, below DESTDIR and PREFIX, and the helpers of mount(8) below DESTDIR.
install: build install-files

# The command without any library of the system, for initramfs and containers; FEATURES leaves parts out (docs/release.md).
static:
	scripts/static.sh

# A Debian package, in target/debian.
deb: build
	scripts/deb.sh

# A container image with the static command alone, named platfs.
container: static
	scripts/container.sh

# Every combination of the command's features.
features:
	scripts/features.sh

# The libraries, and the command where it makes sense, for other systems and processors: the compiler's word only.
targets:
	scripts/targets.sh check

# Tests for a big-endian and for a 32-bit processor, by qemu-user.
targets-test:
	scripts/targets.sh test

# The library for C with its header and pkg-config file, as libplatfs, below DESTDIR and PREFIX.
install-c:
	$(CARGO) build --release -p platfs-c
	$(MAKE) install-c-files

install-c-files:
	install -D -m 644 bindings/c/include/platfs.h $(DESTDIR)$(PREFIX)/include/platfs.h
	install -D -m 755 $(LIBDIR)/libplatfs_c.so $(DESTDIR)$(PREFIX)/lib/libplatfs.so.$(VERSION)
	ln -sf libplatfs.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libplatfs.so.0
	ln -sf libplatfs.so.0 $(DESTDIR)$(PREFIX)/lib/libplatfs.so
	install -m 644 $(LIBDIR)/libplatfs_c.a $(DESTDIR)$(PREFIX)/lib/libplatfs.a
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' bindings/c/platfs.pc.in \
		>$(DESTDIR)$(PREFIX)/lib/pkgconfig/platfs.pc

# The wheel for Python in a fresh virtual environment, and its tests there.
python:
	scripts/python.sh

# The page that explores images in a browser, as one file: target/web/platfs.html.
web:
	scripts/web.sh

# The page in a browser without a window; PLATFS_SHOTS=DIR keeps pictures of it.
web-test:
	scripts/web.sh --lint
	$(CARGO) test -p platfs-web --lib tests:: -- --include-ignored --test-threads=1 --nocapture

SHARE = $(DESTDIR)$(PREFIX)/share

install-files:
	install -D -m 755 $(PLAT) $(DESTDIR)$(PREFIX)/bin/plat
	install -d $(SHARE)/man/man8 $(SHARE)/bash-completion/completions \
		$(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	@if install -d $(DESTDIR)$(HELPERS) 2>/dev/null && [ -w $(DESTDIR)$(HELPERS) ]; then \
		for name in mount.plat umount.plat mount.fuse.plat umount.fuse.plat; do \
			ln -sfr $(DESTDIR)$(PREFIX)/bin/plat $(DESTDIR)$(HELPERS)/$$name; done; \
	else echo "mount -t plat and /etc/fstab need links in $(HELPERS), which you can't write:" \
		"as root, make install-helpers PREFIX=$(PREFIX)"; fi
	$(PLAT) man $(SHARE)/man/man1
	for name in mount umount mount.fuse umount.fuse; do \
		echo ".so man1/plat-$${name%.fuse}.1" >$(SHARE)/man/man8/$$name.plat.8; done
	$(PLAT) completions bash >$(SHARE)/bash-completion/completions/plat
	$(PLAT) completions zsh >$(SHARE)/zsh/site-functions/_plat
	$(PLAT) completions fish >$(SHARE)/fish/vendor_completions.d/plat.fish

# The helpers of mount(8) alone, for a command that a user has installed.
install-helpers:
	install -d $(DESTDIR)$(HELPERS)
	for name in mount.plat umount.plat mount.fuse.plat umount.fuse.plat; do \
		ln -sfr $(DESTDIR)$(PREFIX)/bin/plat $(DESTDIR)$(HELPERS)/$$name; done

# Every test of the workspace, with the tools they need installed first. Those that need root, a loop device or FUSE are
# counted and named in the last lines where they can't run.
test: setup models
	CARGO="$(CARGO)" scripts/test.sh

# The long tests, which `make test` leaves out: those that are marked `#[ignore]`.
long: setup
	CARGO="$(CARGO)" scripts/test.sh -- --ignored

# Crashes of volumes that the kernel works on (CRASHES), each then opened for writing by the library, `put` and a mount.
crash-kernel:
	PLATFS_STEPS=$(CRASHES) $(CARGO) test --release -p platfs-cli --test all many_crashes_under_the_kernel -- --ignored --nocapture

# At least 100,000 different crash states of each order, recovered and judged (CRASH_STATES), and every planted fault found.
crash:
	$(CARGO) run --release -q -p plat-lab -- crash --fault all
	$(CARGO) run --release -q -p plat-lab -- crash --states $(CRASH_STATES) --e2fsck 500

# Volumes in a real server of S3, which Go installs (TAKEOVERS, RACES: how many of each).
store-test: setup
	scripts/store-test.sh

# The lock protocol of the placement engine under many interleavings (shuttle); SHUTTLE_ITERATIONS raises the number for each model.
models:
	RUSTFLAGS="--cfg shuttle" $(CARGO) test --target-dir $(TARGET)/models -p platfs-placement --lib models

# Random tests with new seeds until MINUTES are over; a failure prints how to repeat it.
soak: setup
	scripts/soak.sh $(MINUTES)

# Files with equal attributes, copied through mounts in every order until MINUTES are over. As root.
mix: setup
	$(CARGO) build --release -p platfs-cli
	scripts/mix.sh $(MINUTES)

# The suites of mounts in a cage that there must be. As root.
in-cage: setup
	scripts/in-cage.sh

# System calls of caged processes over the suites, for the lists of what is allowed. As root, with strace.
count-calls: setup
	scripts/count-calls.sh

# How much of the code the tests run, crate by crate, and the ten files with the least of it.
coverage:
	scripts/coverage.sh

# From a Debian root file system to a checked image, in one minute.
demo: setup build
	scripts/demo.sh

# A virtual machine that boots from an image of ours: fetches QEMU and a Debian kernel where they are missing.
microvm: setup build
	examples/microvm/run.sh

# The manual as a book, in target/book; mdbook makes it (`cargo install mdbook`).
book:
	mdbook build

# The figures of the README: medians of five, peers side by side.
bench: setup build
	scripts/bench.sh
	scripts/bench-mount.sh
	PLATFS_BENCH_CONTENDERS="kernel ordered softdep plat" PLATFS_BENCH_TESTS="tar fsync memory" scripts/bench-mount.sh
	scripts/bench-check.sh
	scripts/bench-resize.sh

# Installs the reference tools that are missing, or says which.
setup:
	scripts/setup.sh

fmt:
	$(CARGO) fmt --all

lint:
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

docs:
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --workspace --no-deps

# Licences, banned crates, sources.
deny:
	$(CARGO) deny check bans licenses sources

# Every fuzz target in turn, for FUZZ_SECONDS each.
fuzz:
	scripts/fuzz.sh $(FUZZ_SECONDS)

# Golden images by the reference tools, in the cache.
images:
	$(CARGO) run -q -p xtask -- images

# The archives of all packages that are published, in target/package.
packages:
	$(CARGO) package --no-verify $(shell grep -L '^publish = false' crates/*/Cargo.toml | xargs sed -n 's/^name = "\(platfs[a-z-]*\)"$$/-p \1/p')

# The rules of the source tree.
tidy:
	$(CARGO) run -q -p xtask -- tidy
