//! The bytes of a file as the readers want them: at hand, or brought when they are needed.

use crate::error::Error;

/// The bytes of a file that is never changed. All of them have addresses; a page may have to be brought before it is touched.
///
/// Of bytes in memory and of a file that is mapped every page is here. A cache of a file that is elsewhere answers otherwise.
pub trait FileBytes: AsRef<[u8]> {
    /// Whether a page of the file is here and may be touched. Asked once for each page, before its checksum is looked at.
    #[inline]
    fn has_page(&self, number: u64) -> bool {
        let _ = number;
        true
    }

    /// Brings a page that is not here, or whose checksum does not hold. Where all there is is here this does nothing, and the page is
    /// damaged.
    ///
    /// # Errors
    /// [`Error::Absent`] with the reason why it cannot be brought.
    fn bring_page(&self, number: u64) -> Result<(), Error> {
        let _ = number;
        Ok(())
    }
}

impl<T: AsRef<[u8]> + ?Sized> FileBytes for &T {}

impl FileBytes for Vec<u8> {}
