//! Walks a segment in both directions, and passes over all of it.

use crate::builder::separator;
use crate::bytes::shared_len;
use crate::codec::PageBuf;
use crate::columns::LastOfGroup;
use crate::entry::{Entry, EntrySource, Value};
use crate::error::{Error, Reason};
use crate::file_bytes::FileBytes;
use crate::key_buf::KeyBuf;
use crate::page::{EntryAt, Page, Shape, Stored};
use crate::page_header::{CODE_DELETION, CODE_OVERFLOW};
use crate::segment::{Loaded, Segment, span_misses};
use crate::span::{PageSpan, Pivot, PivotSink, Separator};
use crate::step::BlockNumber;
use crate::walk::Walk;

/// A position among the entries of a segment. Allocates when it is made, and once more for the first compressed page.
///
/// A new cursor stands before the first entry. An error leaves it after the last. Every step leads to an entry that sorts strictly
/// after (before) the one it came from, every seek to one at or after the position, or to an error: whatever the bytes
/// are, a loop over a cursor ends.
pub struct Cursor<'s, D> {
    segment: &'s Segment<D>,
    buf: PageBuf,
    place: Place,
    page: u64,
    shape: Shape,
    plain: Option<&'s [u8]>,
    walk: Walk,
    key: KeyBuf,
    /// The key that a step came from, where that is in another page.
    from: Vec<u8>,
    /// The value of the entry, where it is outside its page.
    overflow: Value<'s>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Before,
    At,
    After,
}

/// The value of the entry that a cursor stands on: a value in its page, or one that does not borrow from the cursor.
#[derive(Clone, Copy)]
pub(crate) enum Held<'a, 's> {
    InPage(&'a [u8]),
    Is(Value<'s>),
}

/// An entry, taken apart: key, block, value.
type Parts<'a, 's> = (&'a [u8], BlockNumber, Held<'a, 's>);

impl<'s, D: FileBytes> Cursor<'s, D> {
    /// The entry that the cursor stands on, or `None` before the first and after the last.
    #[inline]
    pub fn entry(&self) -> Option<Entry<'_>> {
        let (key, block, value) = self.parts()?;
        let value = match value {
            Held::Is(value) => value,
            Held::InPage(bytes) => Value::Inline(bytes),
        };
        Some(Entry { key, block, value })
    }

    /// The data page of the entry that the cursor stands on; `None` before the first and after the last.
    #[inline]
    pub fn page(&self) -> Option<u64> {
        (self.place == Place::At).then_some(self.page)
    }

    /// The entry that the cursor stands on, taken apart.
    #[inline]
    pub(crate) fn parts(&self) -> Option<Parts<'_, 's>> {
        if self.place != Place::At {
            return None;
        }
        let entry = self.walk.entry();
        let value = match entry.code {
            CODE_DELETION => Held::Is(Value::Deletion),
            CODE_OVERFLOW => Held::Is(self.overflow),
            _ => Held::InPage(&self.body()[usize::from(entry.value_at)..entry.end()]),
        };
        Some((&self.key, entry.block, value))
    }

    /// Goes to the first entry. `false`: there is none.
    pub fn seek_first(&mut self) -> Result<bool, Error> {
        self.place = Place::After;
        self.enter_page(0)
    }

    /// Goes to the first entry of a data page. `false`: there is no such page.
    ///
    /// # Cost
    /// One page.
    pub fn seek_page(&mut self, page: u64) -> Result<bool, Error> {
        self.place = Place::After;
        self.enter_page(page)
    }

    /// Goes to the last entry. `false`: there is none.
    pub fn seek_last(&mut self) -> Result<bool, Error> {
        self.place = Place::After;
        match self.segment.summary().pages.checked_sub(1) {
            Some(last) => self.enter_page_backward(last),
            None => Ok(false),
        }
    }

    /// Goes to the first entry at or after the position `(key, at)`: the newest version of `key` at or below `at`
    /// if there is one, else the first entry of a greater key. `false`: there is none.
    ///
    /// # Cost
    /// Looks at log2(pages) pages: with a pivot index, [`Cursor::seek_in`] looks at one.
    pub fn seek(&mut self, key: &[u8], at: BlockNumber) -> Result<bool, Error> {
        self.place = Place::After;
        let Some(last) = self.segment.summary().pages.checked_sub(1) else { return Ok(false) };
        self.seek_in(PageSpan { first: 0, last, restart: 0 }, key, at)
    }

    /// Goes to the first entry at or after the position `(key, at)`, which is in `span` or just after it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged page, [`Error::Mismatch`] for a span that the segment does not have.
    pub fn seek_in(&mut self, span: PageSpan, key: &[u8], at: BlockNumber) -> Result<bool, Error> {
        self.place = Place::After;
        self.segment.check_span(span)?;
        let page = self.segment.page_of(span, key, at, &mut self.buf)?;
        let loaded = self.load(page)?;
        let hint = self.segment.hint_in(span, page, &loaded)?;
        let view = loaded.page(&self.buf);
        let group = match key.strip_prefix(view.prefix()) {
            Some(rest) => view.group_of(hint, rest, at)?.unwrap_or(hint),
            None if key < view.prefix() => hint,
            None => loaded.shape.restarts() - 1,
        };
        self.walk.start(&view, group, &mut self.key)?;
        while (&*self.key, at) < (key, self.walk.entry().block) {
            if !self.walk.next(&view, &mut self.key)? {
                let found = self.enter_page(page + 1)?;
                if found && (&*self.key, at) < (key, self.walk.entry().block) {
                    self.place = Place::After;
                    return Err(span_misses(span));
                }
                return Ok(found);
            }
        }
        self.arrive()
    }

    /// Goes to the next entry. `false`: the cursor stands after the last.
    #[expect(
        clippy::should_implement_trait,
        reason = "an entry borrows from the cursor: no iterator can give it"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<bool, Error> {
        match self.place {
            Place::Before => return self.seek_first(),
            Place::After => return Ok(false),
            Place::At => {}
        }
        let body = self.plain.unwrap_or_else(|| self.buf.body());
        if self.walk.step(self.shape.prefix_len(), body, &mut self.key) {
            return Ok(true);
        }
        self.next_unusual()
    }

    /// Goes to the next entry where that is in the same page. `false`: it is not, and nothing changed.
    #[inline]
    pub fn next_in_page(&mut self) -> Result<bool, Error> {
        if self.place != Place::At {
            return Ok(false);
        }
        let body = self.plain.unwrap_or_else(|| self.buf.body());
        if self.walk.step(self.shape.prefix_len(), body, &mut self.key) {
            return Ok(true);
        }
        self.place = Place::After;
        let body = self.plain.unwrap_or_else(|| self.buf.body());
        if self.walk.next(&Page::with_shape(self.shape, body), &mut self.key)? {
            return self.arrive();
        }
        self.place = Place::At;
        Ok(false)
    }

    /// Goes to the next entry, wherever it is and whatever it has.
    #[inline(never)]
    fn next_unusual(&mut self) -> Result<bool, Error> {
        self.place = Place::After;
        let body = self.plain.unwrap_or_else(|| self.buf.body());
        if self.walk.next(&Page::with_shape(self.shape, body), &mut self.key)? {
            return self.arrive();
        }
        let block = self.depart();
        let found = self.enter_page(self.page + 1)?;
        if found && !is_before((&self.from, block), (&self.key, self.walk.entry().block)) {
            return Err(self.out_of_order());
        }
        self.walk.shared = shared_len(&self.from, &self.key);
        Ok(found)
    }

    /// Goes to the entry before. `false`: the cursor stands before the first.
    pub fn prev(&mut self) -> Result<bool, Error> {
        match self.place {
            Place::After => return self.seek_last(),
            Place::Before => return Ok(false),
            Place::At => self.place = Place::After,
        }
        let body = self.plain.unwrap_or_else(|| self.buf.body());
        if self.walk.prev(&Page::with_shape(self.shape, body), &mut self.key)? {
            return self.arrive();
        }
        let Some(page) = self.page.checked_sub(1) else {
            self.place = Place::Before;
            return Ok(false);
        };
        let block = self.depart();
        self.enter_page_backward(page)?;
        if is_before((&self.key, self.walk.entry().block), (&self.from, block)) {
            return Ok(true);
        }
        Err(self.out_of_order())
    }

    /// Keeps the key that the cursor leaves for another page, and returns the block.
    fn depart(&mut self) -> BlockNumber {
        self.from.clear();
        self.from.extend_from_slice(&self.key);
        self.walk.entry().block
    }

    #[cold]
    fn out_of_order(&mut self) -> Error {
        self.place = Place::After;
        self.view().damaged(Reason::Order)
    }

    fn new(segment: &'s Segment<D>) -> Self {
        Self {
            segment,
            buf: PageBuf::default(),
            place: Place::Before,
            page: 0,
            shape: Shape::default(),
            plain: Some(&[]),
            walk: Walk::default(),
            key: KeyBuf::default(),
            from: Vec::new(),
            overflow: Value::Deletion,
        }
    }

    #[inline]
    fn body(&self) -> &[u8] {
        self.plain.unwrap_or_else(|| self.buf.body())
    }

    fn view(&self) -> Page<'_> {
        Page::with_shape(self.shape, self.body())
    }

    fn load(&mut self, page: u64) -> Result<Loaded<'s>, Error> {
        let loaded = self.segment.load(page, &mut self.buf)?;
        (self.page, self.shape, self.plain) = (page, loaded.shape, loaded.plain);
        Ok(loaded)
    }

    fn enter_page(&mut self, page: u64) -> Result<bool, Error> {
        if page >= self.segment.summary().pages {
            return Ok(false);
        }
        let loaded = self.load(page)?;
        self.walk.start(&loaded.page(&self.buf), 0, &mut self.key)?;
        self.arrive()
    }

    fn enter_page_backward(&mut self, page: u64) -> Result<bool, Error> {
        let loaded = self.load(page)?;
        self.walk.last(&loaded.page(&self.buf), &mut self.key)?;
        self.arrive()
    }

    /// Takes the value of the entry that the walk found where it is outside its page, so that [`Cursor::entry`] cannot fail.
    fn arrive(&mut self) -> Result<bool, Error> {
        let view = self.view();
        if let Stored::Overflow(reference) = view.value(self.walk.entry())? {
            self.overflow = Value::Overflow(self.segment.blob(&reference, &view)?);
        }
        self.place = Place::At;
        Ok(true)
    }
}

impl<D: FileBytes> EntrySource for Cursor<'_, D> {
    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        Cursor::entry(self)
    }

    #[inline]
    fn position(&self) -> Option<(&[u8], BlockNumber)> {
        (self.place == Place::At).then(|| (&*self.key, self.walk.entry().block))
    }

    #[inline]
    fn shared(&self) -> usize {
        self.walk.shared
    }

    #[inline]
    fn advance(&mut self) -> Result<(), Error> {
        self.next().map(drop)
    }
}

impl<D: FileBytes> Segment<D> {
    /// A cursor before the first entry.
    pub fn cursor(&self) -> Cursor<'_, D> {
        Cursor::new(self)
    }

    /// Offers the pivots that the builder of this segment offered, in the same order: what a reindex reads.
    ///
    /// # Cost
    /// Of a group in columns only the first and the last key are put together, the latter from the few entries that hold its bytes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged page, or the sink's own.
    pub fn offer_pivots(&self, sink: &mut impl PivotSink) -> Result<(), Error> {
        let (mut ordinal, mut before) = (0, None);
        let mut keys = KeyPair::default();
        let mut buf = PageBuf::default();
        for page in 0..self.summary().pages {
            let loaded = self.load(page, &mut buf)?;
            let view = loaded.page(&buf);
            let mut count = 0;
            for group in 0..view.shape.restarts() {
                let entry = view.restart_entry(group)?;
                let shared = keys.restart(view.prefix(), view.suffix(&entry));
                let separator = match before {
                    Some(before) => separator(&keys.key, shared, before),
                    None => Separator { key: &[], before: None },
                };
                sink.pivot(&Pivot { separator, page, restart: group as u16, ordinal })?;
                let last = if view.shape.in_columns() {
                    view.last_key_of(group, &mut keys.key)?
                } else {
                    walk_to_last(&view, group, entry, &mut keys)?
                };
                before = Some(last.block);
                ordinal += last.entries;
                count += last.entries;
            }
            if count != view.shape.count() as u64 {
                return Err(view.damaged(Reason::Count));
            }
        }
        Ok(())
    }

    /// Calls `visit` with each distinct key, in order: what rebuilding a filter reads.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged page, or the visitor's own.
    pub fn for_each_key(&self, mut visit: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let mut keys = KeyPair::default();
        let mut buf = PageBuf::default();
        let mut is_first = true;
        for page in 0..self.summary().pages {
            let loaded = self.load(page, &mut buf)?;
            let view = loaded.page(&buf);
            for group in 0..view.shape.restarts() {
                let end = view.group_at(group + 1)?;
                let mut entry = view.restart_entry(group)?;
                let shared = keys.restart(view.prefix(), view.suffix(&entry));
                if is_first || shared < keys.key.len() {
                    visit(&keys.key)?;
                    is_first = false;
                }
                while entry.next() < end {
                    entry = view.entry_after(&entry)?;
                    let suffix = view.suffix(&entry);
                    if !suffix.is_empty() {
                        keys.extend(view.shape.prefix_len() + entry.shared(), suffix);
                        visit(&keys.key)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Makes `keys` that of the last entry of a group of rows, of which `entry` is the first.
fn walk_to_last(
    view: &Page<'_>,
    group: usize,
    mut entry: EntryAt,
    keys: &mut KeyPair,
) -> Result<LastOfGroup, Error> {
    let end = view.group_at(group + 1)?;
    let mut entries = 1;
    while entry.next() < end {
        entry = view.entry_after(&entry)?;
        keys.extend(view.shape.prefix_len() + entry.shared(), view.suffix(&entry));
        entries += 1;
    }
    Ok(LastOfGroup { block: entry.block, entries })
}

/// Whether the first (key, block) sorts strictly before the second.
fn is_before(a: (&[u8], BlockNumber), b: (&[u8], BlockNumber)) -> bool {
    a.0.cmp(b.0).then(b.1.cmp(&a.1)).is_lt()
}

/// The key before and the key that a restart begins with.
#[derive(Default)]
struct KeyPair {
    key: Vec<u8>,
    fresh: Vec<u8>,
}

impl KeyPair {
    /// Takes the whole key at a restart and returns what it shares with the key before.
    fn restart(&mut self, prefix: &[u8], suffix: &[u8]) -> usize {
        self.fresh.clear();
        self.fresh.extend_from_slice(prefix);
        self.fresh.extend_from_slice(suffix);
        std::mem::swap(&mut self.key, &mut self.fresh);
        shared_len(&self.key, &self.fresh)
    }

    #[inline]
    fn extend(&mut self, shared: usize, suffix: &[u8]) {
        self.key.truncate(shared);
        self.key.extend_from_slice(suffix);
    }
}
