//! Tables for people, JSON for programs.
