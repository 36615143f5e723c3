//! A Redis Cluster: routing by slot, slots that move, members that die.

mod failovers;
mod in_doubt;
mod kinds;
mod migrations;
mod moving;
mod names;
mod pub_sub;
mod redirects;
mod routing;
