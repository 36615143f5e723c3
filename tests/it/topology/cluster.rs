//! A Redis Cluster: routing by slot, slots that move, members that die.

mod names;
mod pub_sub;
mod routing;
