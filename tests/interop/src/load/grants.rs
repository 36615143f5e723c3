//! The grants recorded by the load loops: a second witness, which also covers killed processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The content of a folder's logs.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    /// The number of grants, by the part of the log's name before `-`.
    pub(crate) counts: BTreeMap<String, usize>,
    /// Grants of a name beside as many others as may be inside: the holder, and one of the others.
    pub(crate) overlaps: Vec<String>,
}

/// `places` says how many may be inside a name at once.
pub(crate) fn read(folder: &Path, places: usize) -> Grants {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut by_name: BTreeMap<String, Vec<(u64, u64, String)>> = BTreeMap::new();
    let entries = fs::read_dir(folder).expect("the folder of the grants can be read");
    for entry in entries {
        let path = entry.expect("the folder of the grants can be read").path();
        let holder = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        for line in fs::read_to_string(&path).expect("the grants can be read").lines() {
            // A killed writer may leave half a line.
            if let Some((name, acquired, released)) = grant(line) {
                let whose = holder.split('-').next().unwrap_or_default();
                *counts.entry(whose.to_owned()).or_default() += 1;
                by_name.entry(name).or_default().push((acquired, released, holder.clone()));
            }
        }
    }
    let overlaps = by_name.iter_mut().flat_map(|(name, grants)| overlaps_of(name, grants, places)).collect();
    Grants { counts, overlaps }
}

fn grant(line: &str) -> Option<(String, u64, u64)> {
    let mut parts = line.split(',');
    let (name, acquired, released) = (parts.next()?, parts.next()?, parts.next()?);
    Some((name.to_owned(), acquired.parse().ok()?, released.parse().ok()?))
}

fn overlaps_of(name: &str, grants: &mut [(u64, u64, String)], places: usize) -> Vec<String> {
    grants.sort_unstable();
    let mut found = vec![];
    let mut inside: Vec<&(u64, u64, String)> = vec![];
    for grant in grants.iter() {
        inside.retain(|other| other.1 > grant.0);
        if inside.len() >= places
            && let Some(next) = inside.iter().min_by_key(|other| other.1)
        {
            found.push(format!("{name}: {} got in {} ns before {} left", grant.2, next.1 - grant.0, next.2));
        }
        inside.push(grant);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlap_is_found_and_a_half_line_is_not_taken_for_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a-1"), "x,10,20\nx,30,60\ny,1,2\nx,9").unwrap();
        fs::write(folder.path().join("b-2"), "x,20,30\nx,40,50\nx,55,70\n").unwrap();
        let grants = read(folder.path(), 1);
        assert_eq!((grants.counts["a"], grants.counts["b"]), (3, 3));
        assert_eq!(grants.overlaps.len(), 2, "{:?}", grants.overlaps);
    }

    #[test]
    fn two_may_be_inside_two_places_and_a_third_may_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a-1"), "x,10,20\nx,15,40\nx,20,30\n").unwrap();
        assert_eq!(read(folder.path(), 2).overlaps.len(), 0);
        fs::write(folder.path().join("b-2"), "x,29,35\n").unwrap();
        assert_eq!(read(folder.path(), 2).overlaps, ["x: b-2 got in 1 ns before a-1 left"]);
    }
}
