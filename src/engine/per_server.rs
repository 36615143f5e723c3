//! One thing for each server of a client, made at the first use.

use std::sync::Arc;

use once_cell::sync::OnceCell;

use crate::transport::ServerNumber;

/// The things that were made, each at the number of its server. A look takes no mutex: the places lie in rows, each
/// twice as long as the one before, which stay where they are.
pub(crate) struct PerServer<T>([OnceCell<Row<T>>; usize::BITS as usize]);

type Row<T> = Box<[OnceCell<Arc<T>>]>;

impl<T> PerServer<T> {
    pub(crate) fn get(&self, ServerNumber(number): ServerNumber, make: impl FnOnce() -> T) -> &Arc<T> {
        let row = (number + 1).ilog2();
        let places = self.0[row as usize].get_or_init(|| (0..1_usize << row).map(|_| OnceCell::new()).collect());
        places[number + 1 - (1 << row)].get_or_init(|| Arc::new(make()))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        self.0.iter().filter_map(OnceCell::get).flatten().filter_map(OnceCell::get)
    }
}

impl<T> Default for PerServer<T> {
    fn default() -> Self {
        Self([const { OnceCell::new() }; usize::BITS as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_one_thing_of_its_own() {
        let all = PerServer::default();
        let numbers = [0, 1, 2, 3, 4, 100, 6, 7, 8, 100, 0];
        numbers.iter().for_each(|&number| assert_eq!(**all.get(ServerNumber(number), || number), number));
        assert!(all.all().map(|thing| **thing).eq([0, 1, 2, 3, 4, 6, 7, 8, 100]));
    }
}
