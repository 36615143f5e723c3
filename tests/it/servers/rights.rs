//! The least rights of a user of the plain lock, as `docs/operations.md` lists them.
