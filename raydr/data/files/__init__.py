"""Files with a table: dialect, header and cells of texts, Parquet, NumPy and AnnData files."""
