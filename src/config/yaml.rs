//! Settings from a YAML file.
//!
//! The library gives the tree with the place of every node; what a key means is known to [`JobConfig::set`] alone. A value is
//! therefore taken as it is written: `1.10` is not a number here, and `60000` not yet one.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Spanned, from_str_with_options};

use super::JobConfig;
use super::keys::{ConfigError, KEYS};

impl JobConfig {
    /// Sets the keys of a YAML document: flat (`a.b.c: v`), nested, or both mixed. An empty document sets nothing.
    ///
    /// A list is a value for `taskmanager.cores` only. What is not valid is left out; the rest is set.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stoplog::prelude::*;
    ///
    /// let mut config = JobConfig::default();
    /// config.load_yaml("execution.checkpointing:\n  interval: 60000\n  dir: file:///var/lib/totals\n").unwrap();
    /// assert_eq!(config.checkpoints.interval, Some(Duration::from_secs(60)));
    /// ```
    ///
    /// # Errors
    /// Every fault, each with its line. A text that is no YAML has one.
    pub fn load_yaml(&mut self, text: &str) -> Result<(), Vec<ConfigError>> {
        let options = serde_saphyr::options! {
            // Repeated keys are all told, wherever they stand: see `take`.
            duplicate_keys: DuplicateKeyPolicy::PassThrough,
            merge_keys: MergeKeyPolicy::AsOrdinary,
            // `yes` and `on` are text.
            strict_booleans: true,
            with_snippet: false,
        };
        let node: Node = from_str_with_options(text, options)
            .map_err(|error| vec![ConfigError::NotYaml { message: error.to_string() }])?;
        let mut file = File { text, lines: BTreeMap::new(), faults: Vec::new() };
        match node {
            Node::Nothing => {}
            Node::Map(entries) => entries.into_iter().for_each(|entry| file.take(self, "", entry)),
            Node::Text(_) | Node::Typed(_) | Node::List(_) => {
                file.faults.push(ConfigError::NotYaml {
                    message: "the document is not a map; `key: value` is expected".to_owned(),
                });
            }
        }
        if file.faults.is_empty() { Ok(()) } else { Err(file.faults) }
    }
}

type Entry = (Spanned<String>, Spanned<Node>);

/// A node of the document. Nobody but [`JobConfig::set`] knows the types of the settings.
#[derive(Debug)]
enum Node {
    Nothing,
    /// Quoted, or without a type of its own.
    Text(String),
    /// Read as a number or a truth value; the text is close to what is written.
    Typed(String),
    List(Vec<Spanned<Node>>),
    Map(Vec<Entry>),
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a setting, or a map or a list of them")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Typed(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Typed(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Typed(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Typed(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Node::Map(map))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

/// A document while its settings are taken over.
struct File<'a> {
    text: &'a str,
    /// Where each key was first set, by its newest name.
    lines: BTreeMap<String, u64>,
    faults: Vec<ConfigError>,
}

impl File<'_> {
    fn take(&mut self, config: &mut JobConfig, above: &str, (key, node): Entry) {
        let line = key.referenced.line();
        let separator = if above.is_empty() { "" } else { "." };
        let key = format!("{above}{separator}{}", key.value);
        if let Node::Map(entries) = node.value {
            return entries.into_iter().for_each(|entry| self.take(config, &key, entry));
        }
        let taken = self.value(&key, node).and_then(|value| {
            let known = KEYS.iter().find(|known| known.old_name == Some(key.as_str()));
            let name = known.map_or(key.as_str(), |known| known.name);
            if let Some(first) = self.lines.get(name) {
                return Err(ConfigError::Repeated { key: key.clone(), first_line: *first });
            }
            self.lines.insert(name.to_owned(), line);
            config.set(&key, &value)
        });
        if let Err(error) = taken {
            self.faults.push(ConfigError::AtLine { line, error: Box::new(error) });
        }
    }

    fn value(&self, key: &str, node: Spanned<Node>) -> Result<String, ConfigError> {
        let unfit = |value: &str, expected| {
            Err(ConfigError::Value { key: key.to_owned(), value: value.to_owned(), expected })
        };
        match node.value {
            Node::Text(text) => Ok(text),
            Node::Typed(ref about) => Ok(self.written(&node).unwrap_or(about).to_owned()),
            Node::Nothing => unfit("", "a value"),
            Node::List(items) if key == "taskmanager.cores" => {
                let items: Result<Vec<_>, _> = items.into_iter().map(|item| self.value(key, item)).collect();
                // One core is a list too; without the comma it would be a count.
                items.map(|items| if items.len() == 1 { format!("{},", items[0]) } else { items.join(",") })
            }
            Node::List(_) => unfit("a list", "one value"),
            Node::Map(_) => unfit("a map", "a number"),
        }
    }

    /// A scalar as it stands in the document; of an alias, where its anchor is.
    fn written(&self, node: &Spanned<Node>) -> Option<&str> {
        let span = node.defined.span();
        let start = usize::try_from(span.byte_offset()?).ok()?;
        let length = usize::try_from(span.byte_len()?).ok()?;
        self.text.get(start..start.checked_add(length)?).filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests;
