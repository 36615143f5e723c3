//! The values of keys, by their types.

use std::collections::VecDeque;

use super::words::Bound;
use super::{Data, Entry, Value, WRONG_TYPE};

impl Data {
    pub(super) fn text(&self, key: &[u8]) -> Result<Option<&Vec<u8>>, String> {
        match self.keys.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(WRONG_TYPE.to_owned()),
        }
    }

    pub(super) fn write_text(&mut self, key: &[u8], text: Vec<u8>) {
        let expires = self.keys.get(key).and_then(|entry| entry.expires);
        self.keys.insert(key.to_vec(), Entry { value: Value::Text(text), expires });
    }

    pub(super) fn field(&mut self, key: &[u8], field: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let hash = self.hash(key)?;
        Ok(hash.and_then(|hash| hash.iter().find(|(other, _)| other == field)).map(|(_, value)| value.clone()))
    }

    pub(super) fn score(&mut self, key: &[u8], member: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let sorted = self.sorted(key)?;
        let found = sorted.and_then(|sorted| sorted.iter().find(|(_, other)| other == member));
        Ok(found.map(|(score, _)| score.to_string().into_bytes()))
    }

    pub(super) fn between(&mut self, key: &[u8], from: &[u8], to: &[u8]) -> Result<Vec<(f64, Vec<u8>)>, String> {
        let (from, to) = (Bound::read(from)?, Bound::read(to)?);
        let all = self.sorted(key)?.cloned().unwrap_or_default();
        let is_between = |score: f64| {
            (if from.excluded { score > from.score } else { score >= from.score })
                && (if to.excluded { score < to.score } else { score <= to.score })
        };
        Ok(all.into_iter().filter(|(score, _)| is_between(*score)).collect())
    }

    pub(super) fn drop_if_empty(&mut self, key: &[u8]) {
        let is_empty = self.keys.get(key).is_some_and(|entry| match &entry.value {
            Value::Text(_) => false,
            Value::Hash(hash) => hash.is_empty(),
            Value::List(list) => list.is_empty(),
            Value::Sorted(sorted) => sorted.is_empty(),
        });
        if is_empty {
            self.keys.remove(key);
        }
    }
}

/// The value of one type: to read, where `None` is no key, and to write, where a key is made.
macro_rules! typed {
    ($read:ident, $write:ident, $variant:ident, $type:ty) => {
        impl Data {
            pub(super) fn $read(&mut self, key: &[u8]) -> Result<Option<&mut $type>, String> {
                match self.keys.get_mut(key).map(|entry| &mut entry.value) {
                    None => Ok(None),
                    Some(Value::$variant(value)) => Ok(Some(value)),
                    Some(_) => Err(WRONG_TYPE.to_owned()),
                }
            }

            pub(super) fn $write(&mut self, key: &[u8]) -> Result<&mut $type, String> {
                let fresh = || Entry { value: Value::$variant(<$type>::default()), expires: None };
                match &mut self.keys.entry(key.to_vec()).or_insert_with(fresh).value {
                    Value::$variant(value) => Ok(value),
                    _ => Err(WRONG_TYPE.to_owned()),
                }
            }
        }
    };
}

typed!(hash, hash_to_write, Hash, Vec<(Vec<u8>, Vec<u8>)>);
typed!(list, list_to_write, List, VecDeque<Vec<u8>>);
typed!(sorted, sorted_to_write, Sorted, Vec<(f64, Vec<u8>)>);
