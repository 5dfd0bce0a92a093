//! Scripts for shells know more than the parser: topics, mount options, and that words without a dash are files.
//!
//! Owns: these, and what is added to a script that the generator makes. Excludes the generator.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::Shell;

use super::mount_options;
use super::topics::{Part, TOPICS};
use super::values;
use crate::CommandLine;

/// The parser as the generator is to see it.
pub(super) fn described() -> Command {
    let plat = CommandLine::command();
    let words = help_words(&plat);
    let plat = plat.mut_subcommands(with_files);
    let plat = with_values(plat, "help", "words", words);
    let plat = with_values(plat, "mount", "options", mount_words());
    values::known()
        .into_iter()
        .fold(plat, |plat, (command, arg, values)| with_values(plat, command, arg, values))
}

/// Words that `plat help` takes.
fn help_words(plat: &Command) -> Vec<String> {
    let names = plat.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
    names.chain(TOPICS.iter().map(|topic| topic.name)).map(str::to_owned).collect()
}

fn with_values(plat: Command, command: &str, arg: &str, values: Vec<String>) -> Command {
    let has = |command: &Command| command.get_arguments().any(|other| other.get_id() == arg);
    // The parser keeps words that live as long as the program, which makes one script.
    let known: Vec<&'static str> = values.into_iter().map(|value| &*value.leak()).collect();
    match plat.find_subcommand(command).is_some_and(has) {
        true => plat.mut_subcommand(command, |command| {
            command.mut_arg(arg, |arg| arg.value_parser(PossibleValuesParser::new(known)))
        }),
        false => plat,
    }
}

/// Paths where the parser has only words.
fn with_files(command: Command) -> Command {
    let is_path = |arg: &Arg| {
        let is_word = arg.get_value_hint() == ValueHint::Unknown && arg.get_possible_values().is_empty();
        arg.is_positional() && is_word
    };
    let command =
        command.mut_args(|arg| if is_path(&arg) { arg.value_hint(ValueHint::AnyPath) } else { arg });
    command.mut_subcommands(with_files)
}

/// The words behind `-o`, those with a value up to it.
fn mount_words() -> Vec<String> {
    let items = mount_options::TOPIC.parts.iter().filter_map(|part| match part {
        Part::Item(word, _) => Some(*word),
        Part::Text(_) => None,
    });
    let mut words = Vec::new();
    for word in items.flat_map(|words| words.split(", ")) {
        let (name, values) = word.split_once('=').map_or((word, ""), |(name, values)| (name, values));
        match values.contains('|') {
            true => words.extend(values.split('|').map(|value| format!("{name}={value}"))),
            false if values.is_empty() => words.push(name.to_owned()),
            false if matches!(name, "alloc" | "dirs") => {}
            false => words.push(format!("{name}=")),
        }
    }
    words.extend(values::placing());
    words
}

/// Has bash offer options to who has typed a dash, and files else: it offers files where the script offers nothing. Patterns
/// are off meanwhile, since words of the usage would be taken for some.
///
/// Behind the `@` of a disk stand its partitions, behind the `#` of a store its volumes.
///
/// A path from the root behind an image is one in it, and any word is where a command has no use for files of the host.
const FOR_BASH: &str = r#"
_plat_inside() {
    local image=${COMP_WORDS[2]} typed=$1 above= name
    (( COMP_CWORD > 2 )) && [[ -f $image && $typed != -* ]] || return 1
    case ${COMP_WORDS[1]} in
        ls|tree|stat|cat|rm|mv|cp|ln|mkdir|chmod|chown|xattr|fallocate|convert|frag) ;;
        get|put) [[ $typed == /* ]] || return 1 ;;
        *) return 1 ;;
    esac
    [[ $typed == */* ]] && above=${typed%/*}/
    COMPREPLY=()
    while IFS= read -r name; do
        [[ $above$name == "$typed"* ]] && COMPREPLY+=("$above$name")
    done < <(plat ls -1 "$image" "${above:-/}" 2>/dev/null)
    (( ${#COMPREPLY[@]} > 0 ))
}
_plat_named() {
    local line=${COMP_LINE:0:COMP_POINT} typed kept=() name
    typed=${line##* }
    case $typed in
        # Behind size, kind and date.
        *://*'#'*) line=$(plat store ls "${typed%%#*}" 2>/dev/null | cut -c45- | sed 's/  open: .*//'); kept=("${typed%%#*}#") ;;
        *@*) line=$(plat info "${typed%@*}" 2>&1 | grep -o '@part[0-9]*'); kept=("${typed%@*}") ;;
        *) return 1 ;;
    esac
    COMPREPLY=()
    # Bash parts words at some signs, and replaces what is behind the last.
    while IFS= read -r name; do
        name=$kept$name
        [[ $name == "$typed"* ]] && COMPREPLY+=("${name#"${typed%"$1"}"}")
    done <<<"$line"
    (( ${#COMPREPLY[@]} > 0 ))
}
_plat_words() {
    local had=$- word kept=() before=
    set -f
    if _plat_named "$2" || _plat_inside "$2"; then
        [[ $had == *f* ]] || set +f
        return
    fi
    # Of a list the last word is completed.
    if [[ $2 != -* && $2 =~ ^(.*[,^])[^,^]*$ ]]; then
        before=${BASH_REMATCH[1]}
        COMP_WORDS[COMP_CWORD]=${2#"$before"}
    fi
    _plat "$1" "${2#"$before"}" "$3"
    [[ $had == *f* ]] || set +f
    if [[ "$2" != -* ]]; then
        for word in "${COMPREPLY[@]}"; do
            [[ $word == -* || $word == *[\<\>\[\]]* ]] || kept+=("$before$word")
        done
        COMPREPLY=("${kept[@]}")
    fi
}
"#;

/// Completes partitions behind `@`, volumes behind `#`, and paths behind an image, as for bash.
const FOR_ZSH: &str = r#"
_plat_files() {
    # The command may be among the words, and options may stand before the image.
    local typed=${(Q)words[CURRENT]} command=${${curcontext#*plat-command-}%%:*} above= image word
    local -a names
    for word in "${(@Q)words[1,CURRENT-1]}"; do [[ -z $image && $word != $command && -f $word ]] && image=$word; done
    case $typed in
        *://*'#'*)
            above=${typed%%'#'*}
            names=(${(f)"$(plat store ls "$above" 2>/dev/null | cut -c45- | sed 's/  open: .*//')"})
            above+='#'
            ;;
        *@*)
            above=${typed%@*}
            names=(${(f)"$(plat info "$above" 2>&1 | grep -o '@part[0-9]*')"})
            ;;
        *)
            case $command/$typed in
                (ls|tree|stat|cat|rm|mv|cp|ln|mkdir|chmod|chown|xattr|fallocate|convert|frag)/*|(get|put)//*)
                    [[ $typed == */* ]] && above=${typed%/*}/
                    [[ -n $image ]] && names=(${(f)"$(plat ls -1 "$image" "${above:-/}" 2>/dev/null)"})
                    ;;
            esac
            ;;
    esac
    if (( $#names )); then compadd -- "$above"${^names}; else _files; fi
}
"#;

/// Completes the same in fish.
const FOR_FISH: &str = r#"
function __plat_named
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    string match -q -- '-*' $typed; and return 0
    set -l above (string match -r '^.*/' -- $typed)
    set -l inside ls tree stat cat rm mv cp ln mkdir chmod chown xattr fallocate convert frag
    string match -q '/*' -- $typed; and set -a inside get put
    switch $typed
        case '*://*#*'
            set -l store (string split -m 1 '#' -- $typed)[1]
            plat store ls $store 2>/dev/null | cut -c45- | sed 's/  open: .*//' | string replace -r '^' -- "$store#"
        case '*@*'
            set -l disk (string replace -r '@[^@]*$' '' -- $typed)
            plat info $disk 2>&1 | grep -o '@part[0-9]*' | string replace -r '^' -- $disk
        case '*'
            test (count $words) -gt 2; and test -f "$words[3]"; and contains -- $words[2] $inside; or return 0
            set -q above[1]; or set above ''
            plat ls -1 $words[3] /$above 2>/dev/null | string replace -r '^' -- "$above"
    end
end
complete -c plat -f -n 'set -g __plat_found (__plat_named); count $__plat_found >/dev/null' -a '$__plat_found'
"#;

/// A script with what is added to it.
pub(super) fn finished(shell: Shell, script: Vec<u8>) -> Vec<u8> {
    match shell {
        Shell::Bash => for_bash(&script),
        Shell::Zsh => for_zsh(&script),
        // The generator leaves out words without a dash there.
        Shell::Fish => {
            let words = help_words(&CommandLine::command()).join(" ");
            let line =
                format!("complete -c plat -n \"__fish_seen_subcommand_from help\" -f -a \"{words}\"\n");
            [script, line.into_bytes(), FOR_FISH.into()].concat()
        }
        _ => script,
    }
}

/// Words without a dash are completed by a function of our own, which offers files where it knows nothing.
fn for_zsh(script: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(script);
    let line = |line: &str| match line.starts_with("':") || line.starts_with("'*:") {
        true => line.replace(":_files'", ":_plat_files'"),
        false => line.to_owned(),
    };
    let text: String = text.lines().map(|one| line(one) + "\n").collect();
    added(&text, "\nif [ ", FOR_ZSH)
}

/// A script with functions before the line that calls it.
fn added(text: &str, call: &str, functions: &str) -> Vec<u8> {
    let at = text.rfind(call).unwrap_or(text.len());
    let (own, call) = text.split_at(at);
    format!("{own}{functions}{call}").into_bytes()
}

fn for_bash(script: &[u8]) -> Vec<u8> {
    // The generator writes text.
    let text = String::from_utf8_lossy(script).replace("complete -F _plat ", "complete -F _plat_words ");
    added(&text, "\nif [[", FOR_BASH)
}
