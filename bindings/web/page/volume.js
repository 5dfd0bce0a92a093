// The volume in words: what comes first, every field, the journal, the groups.

shows.volume = tried(async () => {
  if (seen.volume) return;
  const about = await ask({ ask: 'superblock' });
  seen.volume = about;
  const groups = el('div', {});
  byId('volume').replaceChildren(
    el('h2', {}, 'The volume'), facts(about.summary),
    ...(state.about.replayed ? [el('p', { class: 'soft' }, `Shown as it is after replay of its journal, in memory: ${state.about.replayed}.`)] : []),
    el('h3', {}, 'Every field of the superblock'), facts(about.fields),
    ...(about.journal.length ? [el('h3', {}, 'Journal'), facts(about.journal)] : []),
    el('h3', {}, `${plural(about.groups, 'group')}`), groups);
  await more(groups, 0, about.groups);
});

const GROUP_HEADS = ['Group', 'First block', 'Blocks', 'Free', 'Free inodes', 'Directories', 'Block bitmap', 'Inode bitmap', 'Inode table'];

const more = tried(async (box, from, all) => {
  const { groups } = await ask({ ask: 'groups', from, count: from ? 1000 : 64 });
  const line = one => one.problem ? [count(one.group), count(one.start), one.problem]
    : [one.group, one.start, one.blocks, one.free, one.free_inodes, one.directories, one.block_bitmap, one.inode_bitmap, one.inode_table].map(count);
  box.append(table(GROUP_HEADS, groups.map(line), [0, 1, 2, 3, 4, 5, 6, 7, 8]));
  const next = from + groups.length;
  if (groups.length && next < all) {
    const button = el('button', { onclick: () => { button.remove(); more(box, next, all); } }, `Show more of ${count(all)}`);
    box.append(button);
  }
});
