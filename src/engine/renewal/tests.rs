//! Tests of the rounds against a model of a server, on virtual time.
#![cfg(test)]
