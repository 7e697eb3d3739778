//! Points in time as the protocol writes them.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 24 * 60 * 60;
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `Thu, 01 Jan 1970 00:00:00 GMT`.
pub(super) fn header(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let iso = iso(time);
    let (year, month, day, clock) = (&iso[..4], &iso[5..7], &iso[8..10], &iso[11..19]);
    let month = month.parse::<usize>().map_or("Jan", |month| MONTHS[month - 1]);
    format!("{}, {day} {month} {year} {clock} GMT", DAYS[(seconds / DAY % 7) as usize])
}

/// `1970-01-01T00:00:00.000Z`.
pub(super) fn iso(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_written_as_servers_do() {
        let time = UNIX_EPOCH + Duration::from_secs(1_445_412_480);
        assert_eq!(header(time), "Wed, 21 Oct 2015 07:28:00 GMT");
        assert_eq!(iso(time), "2015-10-21T07:28:00.000Z");
    }
}
