// Back and forward of the browser go through directories and views: each is an entry of its history.

// Files by their numbers, to be opened again.
const past = [null];
const kept = file => past.push(file) - 1;

// Notes a place to come back to, with the inode of a file that covers it; not the one that the browser is at.
function visited(file) {
  if (!state.part) return;
  const { image, part, which } = state;
  const place = { image, part, which, view: document.body.dataset.view, way: list.way, file };
  if (JSON.stringify(place) !== JSON.stringify(history.state)) history.pushState(place, '');
}

const comeBack = tried(async place => {
  const file = past[place?.image];
  // Before the first image, or of a page that was loaded again.
  if (!file) return close();
  const isOpen = state.about && state.image === place.image && JSON.stringify(state.part) === JSON.stringify(place.part);
  if (!isOpen) {
    hold(file, new Desk(file, null), place.image);
    return open(place.part, place.which, performance.now(), place);
  }
  view(place.view);
  if (place.view !== 'files') return;
  await enter(place.way, place.file ?? chosen()?.inode, place.file);
  if (place.file !== undefined) await detail(chosen(), true);
});

addEventListener('popstate', event => comeBack(event.state));
