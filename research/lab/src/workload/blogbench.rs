//! A busy blog server, after blogbench: writers add blogs of articles and pictures, rewriters replace articles,
//! commenters append comments, readers read blogs, side by side for a given time. Scores are calls by kind of
//! client (`score`). Readers, rewriters and commenters go by the blogs that were there at the start, so that
//! every system gets the same calls.

use super::Scale;
use crate::numbers::Numbers;
use crate::system::{Op, Phase, Stream};

/// Articles of a blog, and its pictures.
const ARTICLES: u64 = 10;
const PICTURES: u64 = 3;

/// Bytes of a call.
const PIECE: u64 = 8 << 10;

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let blogs = scale.number("blogs", 400, 20)?.max(1);
    let seconds = scale.number("seconds", 10, 1)?;
    let crew = |name: &str, default| scale.number(name, default, default);
    let crews = [("writers", 3), ("rewriters", 1), ("commenters", 5), ("readers", 20)];
    let mut clients = Vec::new();
    for (kind, (name, default)) in (1u64..).zip(crews) {
        for number in 0..crew(name, default)? {
            let numbers =
                Numbers::new(scale.seed.wrapping_mul(1_000_003).wrapping_add(kind * 1_000 + number));
            clients.push(match kind {
                1 => {
                    endless(numbers, move |numbers, turn| new_blog(&format!("new.{number}.{turn}"), numbers))
                }
                2 => endless(numbers, move |numbers, _| rewrite(blogs, number, numbers)),
                3 => endless(numbers, move |numbers, _| comment(blogs, numbers)),
                _ => endless(numbers, move |numbers, _| read_blog(blogs, numbers)),
            });
        }
    }
    let mut numbers = Numbers::new(scale.seed);
    let first = (0..blogs).flat_map(move |blog| new_blog(&format!("blog.{blog}"), &mut numbers));
    let prepare: Stream = Box::new(first.chain([Op::SyncAll]));
    Ok(vec![
        Phase::new("prepare", vec![prepare]),
        Phase::new("serve", clients).within(seconds.saturating_mul(1_000_000_000)),
    ])
}

/// Turns without end.
fn endless(
    mut numbers: Numbers,
    mut turn: impl FnMut(&mut Numbers, u64) -> Vec<Op> + Send + 'static,
) -> Stream {
    Box::new((0..).flat_map(move |number| turn(&mut numbers, number)))
}

/// A file written whole under another name, then renamed, as careful programs do.
fn publish(calls: &mut Vec<Op>, path: &str, hidden: &str, size: u64) {
    calls.push(Op::Open { slot: 0, path: hidden.into(), create: true });
    let pieces = (0..size.div_ceil(PIECE)).map(|i| (i * PIECE, PIECE.min(size - i * PIECE)));
    calls.extend(pieces.map(|(offset, len)| Op::Write { slot: 0, offset, len }));
    calls.extend([Op::Close(0), Op::Rename(hidden.into(), path.into())]);
}

fn new_blog(name: &str, numbers: &mut Numbers) -> Vec<Op> {
    let mut calls = vec![Op::MakeDirectory(name.into())];
    for article in 0..ARTICLES {
        let size = 1 + numbers.below(16 << 10);
        publish(&mut calls, &format!("{name}/article.{article}"), &format!("{name}/new"), size);
        if article < PICTURES {
            let size = 1 + numbers.below(64 << 10);
            publish(&mut calls, &format!("{name}/picture.{article}"), &format!("{name}/new"), size);
        }
    }
    calls
}

fn article(blogs: u64, numbers: &mut Numbers) -> String {
    format!("blog.{}/article.{}", numbers.below(blogs), numbers.below(ARTICLES))
}

fn rewrite(blogs: u64, number: u64, numbers: &mut Numbers) -> Vec<Op> {
    let (mut calls, path) = (Vec::new(), article(blogs, numbers));
    publish(&mut calls, &path, &format!("rewriter.{number}"), 1 + numbers.below(16 << 10));
    calls
}

/// Comments are files beside the article; each is written again with the next.
fn comment(blogs: u64, numbers: &mut Numbers) -> Vec<Op> {
    let path: Box<str> = format!("{}.comment.{}", article(blogs, numbers), numbers.below(8)).into();
    let len = 1 + numbers.below(PIECE);
    vec![Op::Open { slot: 0, path, create: true }, Op::Write { slot: 0, offset: 0, len }, Op::Close(0)]
}

fn read_blog(blogs: u64, numbers: &mut Numbers) -> Vec<Op> {
    let blog = format!("blog.{}", numbers.below(blogs));
    let mut calls = vec![Op::List(blog.as_str().into())];
    let files = (0..ARTICLES).map(|article| (format!("{blog}/article.{article}"), 2));
    for (path, pieces) in files.chain((0..PICTURES).map(|picture| (format!("{blog}/picture.{picture}"), 8))) {
        calls.push(Op::Open { slot: 0, path: path.into(), create: false });
        calls.extend((0..pieces).map(|i| Op::Read { slot: 0, offset: i * PIECE, len: PIECE }));
        calls.push(Op::Close(0));
    }
    calls
}
