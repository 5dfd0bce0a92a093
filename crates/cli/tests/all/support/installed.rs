//! The command as `make install-files` installs it, and users who have it in a directory of their own.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::scratch::Scratch;
use testkit::tool;

/// A user that no machine has.
const UID: u32 = 65_601;

/// The directory of the sources.
pub fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// `make install-files` below a directory, of the command under test.
pub fn install(destination: &Path, words: &[&str]) -> String {
    let mut make = tool::command("make");
    make.arg("-s").arg("-C").arg(project()).arg("install-files").args(words);
    make.arg(format!("DESTDIR={}", destination.display())).arg(concat!("PLAT=", env!("CARGO_BIN_EXE_plat")));
    let output = tool::run(&mut make);
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

/// Somebody with a home and the installed command: a user without rights, where the test has those to become one.
///
/// All that is run shares one namespace of mounts, which has the user's name and ends with this value.
pub struct User {
    scratch: Scratch,
    holder: Option<Child>,
}

impl User {
    /// Makes the home and installs the command; nothing where a tool for it is missing.
    pub fn new(test: &str) -> Option<Self> {
        let tools = ["make", "bash", "unshare", "nsenter", "setpriv", "mount", "sleep"];
        if !tool::have_tools(test, &tools) {
            return None;
        }
        let scratch = Scratch::new("user");
        install(&scratch.join("root"), &["PREFIX=/usr", "HELPERS=/usr/sbin"]);
        fs::create_dir(scratch.join("home")).unwrap();
        let mut user = User { scratch, holder: None };
        if tool::administers() {
            for path in [user.scratch.path().to_owned(), user.scratch.join("root")] {
                fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            }
            chown(user.home(), Some(UID), Some(UID)).unwrap();
            user.holder = Some(user.hold());
        }
        Some(user)
    }

    /// A process that keeps a namespace in which the user has a name, which fusermount3 asks for.
    fn hold(&self) -> Child {
        let home = self.home();
        for (file, line) in [
            ("passwd", format!("guide:x:{UID}:{UID}::{}:/bin/bash\n", home.display())),
            ("group", format!("guide:x:{UID}:\n")),
        ] {
            let known = fs::read_to_string(Path::new("/etc").join(file)).unwrap_or_default();
            fs::write(self.scratch.join(file), known + &line).unwrap();
        }
        let ready = self.scratch.join("ready");
        let script = "mount --bind passwd /etc/passwd && mount --bind group /etc/group && : >ready && \
                      exec setpriv --pdeathsig KILL sleep 100000";
        let mut command = tool::command("unshare");
        command.args(["--mount", "--propagation", "private", "bash", "-c", script]);
        let mut holder = command.current_dir(self.scratch.path()).stdin(Stdio::null()).spawn().unwrap();
        while !ready.exists() {
            assert!(holder.try_wait().unwrap().is_none(), "no namespace of mounts can be made");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        holder
    }

    /// The directory of the user.
    pub fn home(&self) -> PathBuf {
        self.scratch.join("home")
    }

    /// A command line of a shell, at home, with the installed command and nothing else of the caller's environment.
    pub fn shell(&self, line: &str) -> Command {
        let mut command = match &self.holder {
            Some(holder) => {
                let mut command = tool::command("nsenter");
                command.arg(format!("--mount=/proc/{}/ns/mnt", holder.id()));
                command.arg("setpriv").args(["--reuid", &UID.to_string(), "--regid", &UID.to_string()]);
                command.args(["--clear-groups", "--inh-caps=-all", "bash"]);
                command
            }
            None => tool::command("bash"),
        };
        let home = self.home();
        let script = format!("cd {} && {{ {line}\n}} 2>&1", home.display());
        let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", self.scratch.join("root/usr/bin").display());
        command.args(["-c", &script]).env_clear().env("HOME", &home).env("PATH", path).env("LC_ALL", "C");
        command
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(holder) = &mut self.holder {
            // What is still mounted would outlive the shell that mounted it.
            let script = "plat umount 2>/dev/null | sed -n 's/.* on \\(.*\\) (r[wo])$/\\1/p' | while read -r at; do plat umount -l \"$at\"; done";
            let left = Command::new("nsenter")
                .arg(format!("--mount=/proc/{}/ns/mnt", holder.id()))
                .args(["bash", "-c", script])
                .env("PATH", format!("{}:/usr/bin:/bin", self.scratch.join("root/usr/bin").display()))
                .output();
            drop(left);
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}
