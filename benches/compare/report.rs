//! Figures become a table, a plot and a verdict on each goal.

use std::fmt::Write;

use plotters::prelude::*;

/// One line of a table: the samples of one peer.
pub struct Row {
    pub name: String,
    pub samples: Vec<f64>,
}

impl Row {
    pub fn new(name: impl Into<String>, samples: Vec<f64>) -> Row {
        Row { name: name.into(), samples }
    }

    pub fn quantile(&self, quantile: f64) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let index = (quantile * (sorted.len() - 1) as f64).round() as usize;
        sorted.get(index).copied().unwrap_or(f64::NAN)
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// What was measured in one way; the first row is what the others are compared with.
pub struct Table {
    pub title: String,
    pub unit: &'static str,
    pub rows: Vec<Row>,
    pub notes: Vec<String>,
}

impl Table {
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    pub fn ratio(&self, name: &str, to: &str) -> Option<f64> {
        Some(self.row(name)?.median() / self.row(to)?.median())
    }

    pub fn markdown(&self) -> String {
        let mut text = format!("**{}**\n\n", self.title);
        let unit = self.unit;
        let _ =
            writeln!(text, "| | median, {unit} | p99, {unit} | x {} |\n|---|--:|--:|--:|", self.rows[0].name);
        for row in &self.rows {
            let ratio = row.median() / self.rows[0].median();
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} |",
                row.name,
                figure(row.median()),
                figure(row.quantile(0.99)),
                figure(ratio)
            );
        }
        self.notes.iter().for_each(|note| text.push_str(&format!("\n{note}\n")));
        text
    }
}

/// Three digits that mean something.
pub fn figure(number: f64) -> String {
    match number {
        n if n.is_nan() => "-".into(),
        n if n >= 100.0 => format!("{n:.0}"),
        n if n >= 10.0 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

/// A figure and the bound that it has to keep.
pub struct Goal {
    pub what: &'static str,
    pub bound: f64,
    pub at_most: bool,
    pub measured: Option<f64>,
}

impl Goal {
    pub fn is_met(&self) -> bool {
        self.measured.is_some_and(
            |measured| if self.at_most { measured <= self.bound } else { measured >= self.bound },
        )
    }
}

pub fn goals_markdown(goals: &[Goal]) -> String {
    let mut text = "| goal | bound | measured | |\n|---|--:|--:|---|\n".to_owned();
    for goal in goals {
        let side = if goal.at_most { "at most" } else { "at least" };
        let measured = goal.measured.map_or("not measured".into(), figure);
        let verdict = if goal.is_met() { "met" } else { "**missed**" };
        let _ = writeln!(text, "| {} | {side} {} | {measured} | {verdict} |", goal.what, figure(goal.bound));
    }
    text
}

/// Medians as bars on a logarithmic axis, a panel for each table.
pub fn plot(tables: &[&Table]) -> String {
    const WIDTH: u32 = 900;
    const LABELS: i32 = 230;
    let heights: Vec<u32> = tables.iter().map(|table| 70 + 26 * table.rows.len() as u32).collect();
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, heights.iter().sum())).into_drawing_area();
        root.fill(&WHITE).unwrap();
        let mut top = 0;
        for (table, height) in tables.iter().zip(&heights) {
            let (x, y) = (0, top as i32);
            let area = root.clone().shrink((x, y), (WIDTH, *height));
            top += height;
            panel(&area, table, LABELS);
        }
        root.present().unwrap();
    }
    svg
}

fn panel(area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, table: &Table, labels: i32) {
    let medians: Vec<f64> = table.rows.iter().map(Row::median).collect();
    let low = medians.iter().copied().fold(f64::INFINITY, f64::min) / 2.0;
    let high = medians.iter().copied().fold(0.0, f64::max) * 2.0;
    let count = table.rows.len() as i32;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{} (median, {})", table.title, table.unit), ("sans-serif", 15))
        .margin_right(60)
        .x_label_area_size(22)
        .set_label_area_size(LabelAreaPosition::Left, labels)
        .build_cartesian_2d((low..high).log_scale(), 0..count)
        .unwrap();
    chart
        .configure_mesh()
        .disable_y_axis()
        .disable_y_mesh()
        .x_labels(8)
        .light_line_style(WHITE)
        .draw()
        .unwrap();
    let colour = |row: &Row| {
        if row.name.starts_with("jitlock") {
            RGBColor(0, 114, 178)
        } else {
            RGBColor(170, 170, 170)
        }
    };
    chart
        .draw_series(table.rows.iter().enumerate().map(|(index, row)| {
            let top = count - index as i32;
            let mut bar = Rectangle::new([(low, top - 1), (row.median(), top)], colour(row).filled());
            bar.set_margin(4, 4, 0, 0);
            bar
        }))
        .unwrap();
    // Names and figures beside the bars, in pixels of the panel.
    let (_, bottom) = chart.backend_coord(&(low, 0));
    let (_, top) = chart.backend_coord(&(low, count));
    let step = f64::from(bottom - top) / f64::from(count);
    let base = area.get_base_pixel();
    for (index, row) in table.rows.iter().enumerate() {
        let y = top + (step * (index as f64 + 0.5)) as i32 - 7 - base.1;
        let (end, _) = chart.backend_coord(&(row.median(), 0));
        let style = ("sans-serif", 13).into_font();
        area.draw(&Text::new(row.name.clone(), (8, y), style.clone())).unwrap();
        area.draw(&Text::new(figure(row.median()), (end - base.0 + 6, y), style)).unwrap();
    }
}
