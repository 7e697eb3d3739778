//! `has_prefix(key, X'..')`: DataFusion's own `starts_with` takes text only, and keys are bytes.

use std::sync::Arc;

use datafusion::arrow::array::{Array, BooleanArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::cast::as_binary_array;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};

/// The name in SQL.
pub(crate) const NAME: &str = "has_prefix";

/// The function `has_prefix(bytes, prefix)`: whether bytes begin with others. Of the key of a table of this crate it is a bound of the
/// scan; anywhere else it is computed.
pub fn has_prefix() -> ScalarUDF {
    let arguments = vec![DataType::Binary, DataType::Binary];
    create_udf(NAME, arguments, DataType::Boolean, Volatility::Immutable, Arc::new(compute))
}

fn compute(arguments: &[ColumnarValue]) -> Result<ColumnarValue> {
    let arrays = ColumnarValue::values_to_arrays(arguments)?;
    let (bytes, prefixes) = (as_binary_array(&arrays[0])?, as_binary_array(&arrays[1])?);
    let found: BooleanArray =
        bytes.iter().zip(prefixes.iter()).map(|(bytes, prefix)| Some(bytes?.starts_with(prefix?))).collect();
    debug_assert_eq!(found.len(), bytes.len());
    Ok(ColumnarValue::Array(Arc::new(found)))
}
