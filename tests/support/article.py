"""The tasks of the article of 2021, in the order of Rally's own noaa track."""

SEARCHES = [
    "range_field_big_range",
    "range_field_small_range",
    "range_field_conjunction_big_range_small_term_query",
    "range_field_conjunction_small_range_small_term_query",
    "range_field_conjunction_small_range_big_term_query",
    "range_field_conjunction_big_range_big_term_query",
    "range_field_disjunction_small_range_small_term_query",
    "range_field_disjunction_big_range_small_term_query",
]
