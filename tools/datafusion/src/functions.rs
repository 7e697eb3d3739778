//! Table functions, so that a query chooses domain and block.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use icecore::Reader;

use crate::changes::ChangesTable;
use crate::external;
use crate::history::HistoryTable;
use crate::prefix::has_prefix;
use crate::state::StateTable;

/// Makes an archive known to a session: the tables `state('DOMAIN')`, the newest state, `state('DOMAIN', BLOCK)`, `history('DOMAIN')`,
/// `changes('DOMAIN')` and `changes()`, of all domains, and the function [`has_prefix`](crate::has_prefix()).
///
/// A query sees the archive as the reader sees it when it is planned: [`Reader::refresh`] on a clone catches up.
pub fn register(context: &SessionContext, reader: Reader) {
    context.register_udf(has_prefix());
    context.register_udtf("state", Arc::new(State(reader.clone())));
    context.register_udtf("history", Arc::new(History(reader.clone())));
    context.register_udtf("changes", Arc::new(Changes(reader)));
}

#[derive(Debug)]
struct State(Reader);

impl TableFunctionImpl for State {
    fn call_with_args(&self, arguments: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let (domain, view) = match arguments.exprs() {
            [domain] => (text(domain), self.0.latest()),
            [domain, block] => match height(block) {
                Some(block) => (text(domain), self.0.at(block)),
                None => return plan_err!("a block is an integer from 0 to 2^64 - 1"),
            },
            _ => return plan_err!("state takes a domain, and a block: state('balance', 17)"),
        };
        let Some(domain) = domain else { return plan_err!("a domain is text: state('balance')") };
        Ok(Arc::new(StateTable::new(view.map_err(external)?, domain)?))
    }
}

#[derive(Debug)]
struct History(Reader);

impl TableFunctionImpl for History {
    fn call_with_args(&self, arguments: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        match arguments.exprs() {
            [domain] if text(domain).is_some() => {
                Ok(Arc::new(HistoryTable::new(self.0.clone(), text(domain).unwrap_or_default())?))
            }
            _ => plan_err!("history takes a domain: history('balance')"),
        }
    }
}

#[derive(Debug)]
struct Changes(Reader);

impl TableFunctionImpl for Changes {
    fn call_with_args(&self, arguments: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let table = match arguments.exprs() {
            [] => ChangesTable::new(self.0.clone()),
            [domain] if text(domain).is_some() => {
                ChangesTable::of_domain(self.0.clone(), text(domain).unwrap_or_default())?
            }
            _ => return plan_err!("changes takes a domain, or nothing for all: changes('balance')"),
        };
        Ok(Arc::new(table))
    }
}

fn text(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _)
        | Expr::Literal(ScalarValue::Utf8View(Some(text)), _)
        | Expr::Literal(ScalarValue::LargeUtf8(Some(text)), _) => Some(text),
        _ => None,
    }
}

fn height(expression: &Expr) -> Option<u64> {
    match expression {
        Expr::Literal(ScalarValue::Int64(Some(block)), _) => u64::try_from(*block).ok(),
        Expr::Literal(ScalarValue::UInt64(Some(block)), _) => Some(*block),
        _ => None,
    }
}
