"""The public edge: takes documents, joins preprocess, ocr and audit, and answers with text and proof."""
