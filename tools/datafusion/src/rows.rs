//! The rows of a table as a plan: read on a thread for what blocks, a batch at a time.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use icecore::Error;

use crate::columns::{Batch, Column, Row, schema};
use crate::external;

/// Batches that are read before they are asked for.
const BATCHES_AHEAD: usize = 2;

/// The rows of a table, from the first.
pub(crate) type RowSource = Box<dyn Iterator<Item = Result<Row, Error>> + Send>;

/// Begins to read a table.
pub(crate) type Begin = Arc<dyn Fn() -> Result<RowSource, Error> + Send + Sync>;

/// A table as it is to be read.
pub(crate) struct TableScan {
    /// All columns of the table.
    pub(crate) columns: &'static [Column],
    /// The column whose ascending order the rows come in, where there is one.
    pub(crate) order: Option<Column>,
    pub(crate) begin: Begin,
}

impl TableScan {
    /// # Errors
    /// The projection names columns that there are not.
    pub(crate) fn plan(
        self,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns: Vec<_> = match projection {
            Some(projection) => projection.iter().map(|column| self.columns[*column]).collect(),
            None => self.columns.to_vec(),
        };
        let schema = schema(&columns);
        let order = self.order.and_then(|order| {
            let at = columns.iter().position(|column| *column == order)?;
            let column = ColumnExpr::new(order.name(), at);
            Some(PhysicalSortExpr::new(Arc::new(column), SortOptions::new(false, false)))
        });
        let order = order.and_then(|order| LexOrdering::new([order]));
        let stream = RowStream { schema: Arc::clone(&schema), columns, limit, begin: self.begin };
        let plan = StreamingTableExec::try_new(schema, vec![Arc::new(stream)], None, order, false, limit)?;
        Ok(Arc::new(plan))
    }
}

/// The one partition of a table.
struct RowStream {
    schema: SchemaRef,
    columns: Vec<Column>,
    limit: Option<usize>,
    begin: Begin,
}

impl fmt::Debug for RowStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowStream").field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl PartitionStream for RowStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), BATCHES_AHEAD);
        let (sender, begin) = (builder.tx(), Arc::clone(&self.begin));
        let (schema, columns) = (Arc::clone(&self.schema), self.columns.clone());
        let (rows_max, limit) = (context.session_config().batch_size(), self.limit.unwrap_or(usize::MAX));
        builder.spawn_blocking(move || {
            let mut rows = begin().map_err(external)?.take(limit);
            loop {
                let mut batch = Batch::new(&columns);
                while !batch.is_full(rows_max) {
                    let Some(row) = rows.next() else { break };
                    batch.push(&row.map_err(external)?);
                }
                // Nobody reads any more where sending fails.
                if batch.rows == 0 || sender.blocking_send(Ok(batch.finish(&schema)?)).is_err() {
                    return Ok(());
                }
            }
        });
        builder.build()
    }
}
