//! The versions of keys as a table.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use icecore::{Error, Reader, Scan};

use crate::columns::{Column, Row, schema};
use crate::external;
use crate::keys::{Filter, Wanted};
use crate::rows::{RowSource, TableScan};
use crate::state::pushdown;

const COLUMNS: &[Column] = &[Column::Key, Column::Block, Column::Value { is_nullable: true }];

/// The versions of the keys that a query names: `key`, `block`, and the `value`, null where the block deleted the key. Of each key the
/// newest version comes first.
///
/// A query must name keys, by `key = X'..'` or `key in (..)`: a plan that does not is an error, since nothing but reading the whole domain
/// would answer it. Comparisons of `block` with constants choose what is read: versions above the range are not, and reading a key ends below it.
#[derive(Clone, Debug)]
pub struct HistoryTable {
    reader: Reader,
    domain: String,
}

impl HistoryTable {
    /// The table of a domain. Each query reads what the reader sees by then.
    ///
    /// # Errors
    /// The archive has no such domain, or no block.
    pub fn new(reader: Reader, domain: &str) -> Result<Self> {
        reader.latest().and_then(|view| view.scan(domain, &Scan::all())).map_err(external)?;
        Ok(Self { reader, domain: domain.to_owned() })
    }
}

#[async_trait::async_trait]
impl TableProvider for HistoryTable {
    fn schema(&self) -> SchemaRef {
        schema(COLUMNS)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(filters.iter().map(|expression| pushdown(Filter::of(expression).is_some())).collect())
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let wanted = Wanted::new(&filters.iter().filter_map(Filter::of).collect::<Vec<_>>());
        let Some(keys) = wanted.keys else {
            let reason = "a history is that of keys: name them, as in where key = X'616c696365'";
            return Err(DataFusionError::Plan(reason.to_owned()));
        };
        let (reader, domain, blocks) = (self.reader.clone(), self.domain.clone(), wanted.blocks);
        let begin = Arc::new(move || rows(&reader, &domain, keys.clone(), blocks));
        TableScan { columns: COLUMNS, order: Some(Column::Key), begin }.plan(projection, limit)
    }
}

fn rows(
    reader: &Reader,
    domain: &str,
    keys: Vec<Vec<u8>>,
    (from, to): (u64, u64),
) -> Result<RowSource, Error> {
    let Some((first, head)) = reader.range() else { return Ok(Box::new(std::iter::empty())) };
    if to < first || to < from {
        return Ok(Box::new(std::iter::empty()));
    }
    let (view, domain) = (reader.at(to.min(head))?, domain.to_owned());
    let of_key = move |key: Vec<u8>| {
        let (changes, error) = match view.history(&*domain, &key) {
            Ok(changes) => (Some(changes), None),
            Err(error) => (None, Some(Err(error))),
        };
        let rows = changes
            .into_iter()
            .flatten()
            .map(move |change| change.map(|change| Row::new(key.clone(), change.value, change.block)));
        error
            .into_iter()
            .chain(rows.take_while(move |row| row.as_ref().map_or(true, |row| from <= row.block)))
    };
    Ok(Box::new(keys.into_iter().flat_map(of_key)))
}
