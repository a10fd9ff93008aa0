//! Text as HTML, and a template with holes.
//!
//! Whatever comes from the input goes through [`escape`], or through [`json`] if scripts read it.

use serde::Serialize;
use std::borrow::Cow;

/// A text that is shown as it is, in an element or in an attribute with double quotes.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

/// Data as JSON that can stand in a `script` element, which nothing in it ends.
pub fn json<T: Serialize>(data: &T) -> String {
    // In JSON, these characters occur in strings only.
    serde_json::to_string(data).expect("plain data becomes JSON").replace('<', "\\u003c")
}

/// A template with its holes, `{{name}}`, filled. Filled text is not scanned again.
pub fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut parts = template.split("{{");
    let mut text = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").expect("a hole that ends");
        let value = values.iter().find(|(known, _)| *known == name);
        text += &value.unwrap_or_else(|| panic!("nothing for the hole {name}")).1;
        text += rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{escape, fill, json};

    #[test]
    fn names_are_only_text() {
        let name = "</script><img src=x onerror=\"alert('1')\">&amp;";
        let escaped = escape(name);
        assert!(!escaped.contains(['<', '>', '"', '\'']), "{escaped}");
        assert!(escaped.ends_with("&gt;&amp;amp;"), "{escaped}");
        let json = json(&[name, "<!--"]);
        assert!(!json.contains('<'), "{json}");
        let read: Vec<String> = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read, [name, "<!--"]);
    }

    #[test]
    fn what_fills_a_hole_has_none() {
        let values = [("a", "{{b}}".to_owned()), ("b", "B".to_owned())];
        assert_eq!(fill("<{{a}}|{{b}}>", &values), "<{{b}}|B>");
    }
}
