//! The ratios of a run as a picture, for people.

use std::fmt::Write;
use std::path::PathBuf;

use crate::figure::Spread;

/// Writes the picture beside other output of cargo and returns the path.
pub(crate) fn save(ratios: &[(String, Spread)]) -> std::io::Result<PathBuf> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("performance.svg");
    std::fs::write(&path, draw(ratios))?;
    Ok(path)
}

/// A line from the least to the most of the rounds, and a dot at the value, for each ratio.
fn draw(ratios: &[(String, Spread)]) -> String {
    let height = TOP + ROW * ratios.len() as f64 + 10.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for tick in [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, MOST] {
        let (x, color) = (place(tick), if tick == 1.0 { "#888" } else { "#ddd" });
        let _ = writeln!(svg, "<line x1=\"{x}\" x2=\"{x}\" y1=\"{TOP}\" y2=\"{height}\" stroke=\"{color}\"/>");
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{tick}</text>", TOP - 6.0);
    }
    for (row, (name, Spread { least, median, most, .. })) in ratios.iter().enumerate() {
        let y = TOP + ROW * (row as f64 + 0.5);
        let [from, at, to] = [least, median, most].map(|value| place(*value));
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>", LEFT - 10.0, y + 4.0);
        let _ = writeln!(
            svg,
            "<line x1=\"{from}\" x2=\"{to}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#9bb8d3\" stroke-width=\"5\"/>"
        );
        let _ = writeln!(svg, "<circle cx=\"{at}\" cy=\"{y}\" r=\"4\" fill=\"#1f4e79\"/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">{median:.2}</text>", WIDTH - 45.0, y + 4.0);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The position of a value on the scale; a value beyond the end is drawn at the end.
fn place(value: f64) -> f64 {
    LEFT + value.clamp(0.0, MOST) / MOST * (WIDTH - LEFT - 60.0)
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 230.0;
const TOP: f64 = 30.0;
const ROW: f64 = 20.0;
const MOST: f64 = 3.0;
