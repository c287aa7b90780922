"""The OCR demo: three real networks (PP-OCR v4) read a rendered page at f32, f16, i16 and i8.
page: the pictures; pipeline: reading; score: wrong characters; annotate: the result; demo: the whole demo."""
