//! Bars for people: a panel for each thing measured, a bar for each candidate.

use std::fmt::Write;

use crate::peer::CANDIDATES;
use crate::table::{ROWS, Row, Table, shown};

/// A picture of the rows with these keys, two panels beside each other.
pub(crate) fn draw(title: &str, keys: &[&str], table: &Table) -> String {
    let rows: Vec<&Row> = ROWS.iter().filter(|row| keys.contains(&row.key)).collect();
    let (mut body, mut bottoms) = (String::new(), [TOP; 2]);
    for row in rows {
        let column = usize::from(bottoms[1] < bottoms[0]);
        let panel = panel(row, table, [LEFT, LEFT + WIDTH][column], bottoms[column]);
        bottoms[column] = panel.1;
        body.push_str(&panel.0);
    }
    let (width, height) = (2.0 * WIDTH, bottoms[0].max(bottoms[1]));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{}\" y=\"24\" text-anchor=\"middle\" font-size=\"17\">{title}</text>\n{body}</svg>\n",
        width / 2.0
    )
}

/// One panel, and where it ends.
fn panel(row: &Row, table: &Table, left: f64, top: f64) -> (String, f64) {
    let measured = |name| table.middle(row.key, name);
    let most = CANDIDATES.iter().filter_map(|candidate| measured(candidate.name)).fold(0.0, f64::max);
    let better = if row.less_is_better { "less is better" } else { "more is better" };
    let heading: String = row.title.chars().filter(|c| *c != '`').collect();
    let unit = if row.unit.is_empty() { String::new() } else { format!("{}, ", row.unit) };
    let mut svg = format!(
        "<text x=\"{left}\" y=\"{}\" font-weight=\"bold\">{heading}</text>\n\
         <text x=\"{left}\" y=\"{}\" fill=\"#555\">{unit}{better}</text>\n",
        top + 14.0,
        top + 29.0
    );
    let mut y = top + 36.0;
    for candidate in CANDIDATES {
        let (part, label) = match (table.cell(row.key, candidate.name), measured(candidate.name)) {
            (_, Some(value)) => (if most > 0.0 { value / most } else { 0.0 }, shown(value)),
            // What took longer than anybody waited.
            (Err(reason), None) if reason.starts_with("over ") => (1.0, super::page::bound(reason)),
            _ => continue,
        };
        let color = match candidate.name {
            "floor" => "#aaa",
            "Lockson" => "#1f4e79",
            _ => "#9bb8d3",
        };
        let bar = (part * BAR).max(1.0);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            left + NAME,
            y + 12.0,
            candidate.name
        );
        let _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"{bar:.1}\" height=\"12\" fill=\"{color}\"/>",
            left + NAME + 8.0,
            y + 2.0
        );
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{}\">{label}</text>", left + NAME + 14.0 + bar, y + 12.0);
        y += 17.0;
    }
    (svg, y + 18.0)
}

const LEFT: f64 = 20.0;
const TOP: f64 = 44.0;
const WIDTH: f64 = 430.0;
const NAME: f64 = 80.0;
const BAR: f64 = 240.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_titles_units_and_the_better_side() {
        let mut table = Table::default();
        table.add("pair", "Lockson", Ok(50.0));
        table.add("pair", "Redisson", Ok(100.0));
        table.add("pair", "redsync", Err("over 40 s: no answer".to_owned()));
        table.add("pair", "rslock", Err("none".to_owned()));
        table.add("hot-1x8-0", "Lockson", Ok(9_000.0));
        let svg = draw("One operation", &["pair", "hot-1x8-0"], &table);
        for part in ["<title>One operation", ">us, less is better<", ">1/s, more is better<", ">50.0<", ">over 40 s<"] {
            assert!(svg.contains(part), "{part} is missing: {svg}");
        }
        assert!(svg.contains("width=\"120.0\"") && svg.contains("width=\"240.0\""), "half as long: {svg}");
        assert!(!svg.contains("rslock"), "nothing was measured: {svg}");
    }
}
