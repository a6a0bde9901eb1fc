"""The formats of tables: what a record holds, in a container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bigfs.storage.sources.base import Source
from bigfs.storage.sources.tables.columnar import ArrowFile, ParquetFile
from bigfs.storage.sources.tables.entries import ListRecords, MapRecords
from bigfs.storage.sources.tables.jsonl import JsonFeatures, JsonFile, JsonLines
from bigfs.storage.sources.tables.numeric import NumericTable
from bigfs.storage.sources.tables.records import SampleRecords, TextRecords
from bigfs.storage.sources.tables.streams import Stream
from bigfs.storage.sources.tables.tables import Csv, CsvFile
from bigfs.storage.sources.tables.triplets import TripletRecords
from bigfs.storage.sources.tables.turned import TurnedTable


def _format(name: str, format: str, holds: Any, container: Any) -> Any:
    """Return the class of a format that differs only in what it holds and where."""
    about: dict[str, Any] = {"format": format, "__module__": __name__, "__doc__": holds.__doc__}
    return dataclass(eq=False, kw_only=True)(type(name, (holds, container), about))


Parquet = _format("Parquet", "parquet", TextRecords, ParquetFile)
ParquetFeatures = _format("ParquetFeatures", "parquet-features", NumericTable, ParquetFile)
ParquetLists = _format("ParquetLists", "parquet-lists", ListRecords, ParquetFile)
ParquetMaps = _format("ParquetMaps", "parquet-maps", MapRecords, ParquetFile)
ParquetTriplets = _format("ParquetTriplets", "parquet-triplets", TripletRecords, ParquetFile)
ParquetTurned = _format("ParquetTurned", "parquet-turned", TurnedTable, ParquetFile)
Arrow = _format("Arrow", "arrow", TextRecords, ArrowFile)
ArrowFeatures = _format("ArrowFeatures", "arrow-features", NumericTable, ArrowFile)
ArrowLists = _format("ArrowLists", "arrow-lists", ListRecords, ArrowFile)
ArrowMaps = _format("ArrowMaps", "arrow-maps", MapRecords, ArrowFile)
ArrowTriplets = _format("ArrowTriplets", "arrow-triplets", TripletRecords, ArrowFile)
ArrowTurned = _format("ArrowTurned", "arrow-turned", TurnedTable, ArrowFile)
StreamText = _format("StreamText", "stream", TextRecords, Stream)
StreamFeatures = _format("StreamFeatures", "stream-features", NumericTable, Stream)
StreamLists = _format("StreamLists", "stream-lists", ListRecords, Stream)
StreamMaps = _format("StreamMaps", "stream-maps", MapRecords, Stream)
StreamTriplets = _format("StreamTriplets", "stream-triplets", TripletRecords, Stream)
JsonLists = _format("JsonLists", "jsonl-lists", ListRecords, JsonFile)
JsonTriplets = _format("JsonTriplets", "jsonl-triplets", TripletRecords, JsonFile)
CsvSamples = _format("CsvSamples", "csv-samples", SampleRecords, CsvFile)
ParquetSamples = _format("ParquetSamples", "parquet-samples", SampleRecords, ParquetFile)
ArrowSamples = _format("ArrowSamples", "arrow-samples", SampleRecords, ArrowFile)
CsvFeatures = _format("CsvFeatures", "csv-features", NumericTable, CsvFile)
CsvTriplets = _format("CsvTriplets", "csv-triplets", TripletRecords, CsvFile)
CsvTurned = _format("CsvTurned", "csv-turned", TurnedTable, CsvFile)

# options that say what the records of a format hold: numbers
BY_OPTION: dict[str, dict[type[Source], type[Source]]] = {
    "transpose": {Csv: CsvTurned, Parquet: ParquetTurned, Arrow: ArrowTurned},
    "columns": {
        **{Csv: CsvFeatures, Parquet: ParquetFeatures},
        **{Arrow: ArrowFeatures, StreamText: StreamFeatures},
    },
    "features": {
        **{JsonLines: JsonFeatures, Parquet: ParquetMaps},
        **{Arrow: ArrowMaps, StreamText: StreamMaps},
    },
    "indices": {
        **{JsonLines: JsonLists, JsonFeatures: JsonLists},
        **{Parquet: ParquetLists, Arrow: ArrowLists, StreamText: StreamLists},
    },
    "triplets": {
        **{Csv: CsvTriplets, Parquet: ParquetTriplets, Arrow: ArrowTriplets},
        **{JsonLines: JsonTriplets, JsonFeatures: JsonTriplets, StreamText: StreamTriplets},
    },
}
