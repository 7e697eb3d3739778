//! JSON in: strings that borrow from their line, and what a parser has to say in plain words.

use std::borrow::Cow;
use std::ops::Deref;

use serde::Deserialize;
use serde_json::error::Category;

/// A string that borrows from its line where it has no escape. `Option<Cow<str>>` never does: serde copies it.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The words of the parser and ours, in this order.
const WORDS: &[(&str, &str)] = &[
    ("invalid type: map", "this is an object"),
    ("invalid type: sequence", "this is an array"),
    ("invalid type: null", "this is null"),
    ("invalid type: unit value", "this is null"),
    ("invalid type: string", "this is the string"),
    ("invalid type: integer", "this is the number"),
    ("invalid type: floating point", "this is the number"),
    ("invalid type: boolean", "this is"),
    ("invalid value: integer", "this is the number"),
    ("invalid value:", "this is"),
    ("unknown variant", "unknown name"),
    ("EOF while parsing a value", "it ends where a value should stand"),
    ("EOF while parsing", "it ends inside"),
    ("expected u64", "expected a whole number"),
    ("expected usize", "expected a whole number"),
    ("expected a borrowed string", "expected a string"),
    ("expected a sequence", "expected an array"),
    ("expected a map", "expected an object"),
    ("expected ident", "expected a JSON value"),
    ("expected value", "expected a JSON value"),
    ("trailing characters", "something follows after the JSON value"),
    ("key must be a string", "a name must be a string"),
    ("`", "\""),
];

/// What is wrong, and in which column.
pub(crate) fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // The parser counts lines inside the text that it was given, which is a line for most.
    let mut text = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]).to_owned();
    for (theirs, ours) in WORDS {
        text = text.replace(theirs, ours);
    }
    let syntax = if error.classify() == Category::Data { "" } else { "not JSON: " };
    match error.column() {
        0 => format!("{syntax}{text}"),
        column => format!("{syntax}{text} (column {column})"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::reason;

    #[test]
    fn words_are_plain() {
        type Numbers = BTreeMap<String, u64>;
        for (text, said) in [
            ("{", "not JSON: it ends inside an object (column 1)"),
            ("", "not JSON: it ends where a value should stand"),
            ("nonsense", "not JSON: expected a JSON value (column 2)"),
            ("{} x", "not JSON: something follows after the JSON value (column 4)"),
            (r#"{"a":"1"}"#, r#"this is the string "1", expected a whole number (column 8)"#),
            (r#"{"a":-1}"#, r#"this is the number "-1", expected a whole number (column 7)"#),
            (r#"{"a":null}"#, "this is null, expected a whole number (column 9)"),
            ("[]", "this is an array, expected an object (column 0)"),
        ] {
            let error = serde_json::from_str::<Numbers>(text).unwrap_err();
            assert_eq!(reason(&error).replace(" (column 0)", ""), said.replace(" (column 0)", ""), "{text}");
        }
    }
}
